// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

// RingState returns the state of a priority or locality whose policy hashes, given
// how many of its endpoints are in which state (A42, A61, T-RING-7); the first rule
// that applies counts. Its endpoints connect when an RPC asks for them, but a
// priority that counts as failed or connecting may get none: wakeOne says that an
// endpoint that is IDLE has to be connected for the state ever to get better.
func RingState(idle, connecting, ready, failed int) (state Connectivity, wakeOne bool) {
	switch {
	case ready > 0:
		return Ready, false
	case failed >= 2:
		state = TransientFailure
	case connecting > 0:
		state = Connecting
	case failed == 1 && idle > 0:
		state = Connecting
	case idle > 0:
		return Idle, false
	default:
		state = TransientFailure
	}
	return state, connecting == 0 && idle > 0
}
