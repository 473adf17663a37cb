// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"sync/atomic"
	"time"
)

// A tail estimates how long the slowest few RPCs of a route take at least, without keeping
// any times: the estimate goes up by a factor with each RPC that takes longer, and down by a
// smaller one with each that does not. It is at rest where one in 23 takes longer. That is
// how many RPCs are hedged, and it follows the route's latency within some hundred RPCs.
//
// The zero value is ready: it takes twice the time of the first RPC, of which none is
// hedged. Any number of goroutines may use it.
type tail struct{ estimate atomic.Int64 } // in nanoseconds

const (
	tailUp   = 1.192
	tailDown = .992
	minTail  = time.Millisecond // hedging sooner than timers are exact is no use
	noTail   = time.Hour        // nothing is known yet
)

// observe takes in an RPC that took so long, or, if it was not alone, longer than the
// estimate.
func (t *tail) observe(alone bool, took time.Duration) {
	follow(&t.estimate, 2*took, minTail, func(was time.Duration) float64 {
		if alone && took <= was {
			return tailDown
		}
		return tailUp
	})
}

// delay is how long an attempt may take before another one is made.
func (h *hedging) delay() time.Duration {
	if h.policy.PerTryTimeout > 0 {
		return h.policy.PerTryTimeout
	}
	if d := h.estimate.Load(); d > 0 {
		return time.Duration(d)
	}
	return noTail
}
