// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !purego

// This file encapsulates access to functions of the runtime by linkname, which requires the
// import of unsafe. proc_safe.go contains the safe implementation. The empty proc.s lets the
// compiler accept functions without a body.

package picker

import _ "unsafe" // for go:linkname

// perProcessor reports whether procPin returns the processor, so that counters can have stripes.
const perProcessor = true

// procPin returns the number of the P that runs the goroutine, from 0 to GOMAXPROCS−1, and keeps
// the goroutine on it until procUnpin. The runtime keeps both available by linkname, since other
// packages use them so (runtime/proc.go). They take 2 ns together; sync.Pool, the only other way
// to data of the current P, takes 10.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()
