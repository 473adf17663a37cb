// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package picker

func init() { raceEnabled = true }
