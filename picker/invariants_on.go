// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package picker

// invariants says whether Build checks what it made. It costs as much again as building.
const invariants = true
