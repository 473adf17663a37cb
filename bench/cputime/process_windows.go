// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cputime

import (
	"syscall"
	"time"
)

// Process returns the processor time of the process so far, or 0 if it is not available.
func Process() time.Duration {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var created, exited, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(self, &created, &exited, &kernel, &user); err != nil {
		return 0
	}
	return span(kernel) + span(user)
}

// span converts a duration, which Windows counts in units of 100 ns.
func span(t syscall.Filetime) time.Duration {
	return time.Duration(uint64(t.HighDateTime)<<32|uint64(t.LowDateTime)) * 100
}
