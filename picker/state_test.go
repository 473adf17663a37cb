// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "testing"

// T-RING-7, rule by rule.
func TestRingState(t *testing.T) {
	for _, test := range []struct {
		idle, connecting, ready, failed int
		want                            Connectivity
		wake                            bool
	}{
		{0, 0, 1, 0, Ready, false}, // 1: one READY is enough
		{9, 9, 1, 9, Ready, false},
		{0, 0, 0, 2, TransientFailure, false}, // 2: two have failed
		{0, 1, 0, 2, TransientFailure, false},
		{1, 0, 0, 2, TransientFailure, true},
		{1, 1, 0, 2, TransientFailure, false},
		{0, 1, 0, 0, Connecting, false}, // 3: one is CONNECTING
		{5, 1, 0, 1, Connecting, false},
		{0, 1, 0, 1, Connecting, false},
		{1, 0, 0, 1, Connecting, true}, // 4: one has failed, of several
		{1, 0, 0, 0, Idle, false},      // 5: one is IDLE
		{0, 0, 0, 1, TransientFailure, false},
		{0, 0, 0, 0, TransientFailure, false},
	} {
		got, wake := RingState(test.idle, test.connecting, test.ready, test.failed)
		if got != test.want || wake != test.wake {
			t.Errorf("RingState(%d idle, %d connecting, %d ready, %d failed) = %d, %t, want %d, %t",
				test.idle, test.connecting, test.ready, test.failed, got, wake, test.want, test.wake)
		}
	}
}
