// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build purego

package picker

// perProcessor reports whether procPin returns the processor. Without it counters have no stripes.
const perProcessor = false

func procPin() int { return 0 }

func procUnpin() {}
