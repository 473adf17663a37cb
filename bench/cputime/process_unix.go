// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cputime

import (
	"syscall"
	"time"
)

// Process returns the processor time of the process so far, or 0 if it is not available.
func Process() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
