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
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("after 10 s of work, %v of processor time", Process()-before)
		}
	}
}
