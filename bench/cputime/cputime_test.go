// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cputime

import (
	"testing"
	"time"
)

// Work that keeps one processor busy is accounted for.
func TestProcess(t *testing.T) {
	before := Process()
	for begin := time.Now(); Process()-before < 20*time.Millisecond; {
		if time.Since(begin) > 2*time.Minute {
			t.Fatalf("after two minutes of work, %v of processor time", Process()-before)
		}
	}
}
