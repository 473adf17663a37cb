// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import "sync/atomic"

// A Throttle is the retryThrottling of A6: each failure that could be retried takes a token,
// each RPC that succeeds gives a part of one back, and while at most half of the tokens are
// left there are no retries. It is the channel's, for the retries of interceptors; gRPC has
// one of its own for those that it makes. Any number of goroutines may use it. A nil one
// throttles nothing.
type Throttle struct {
	max, ratio int64 // in thousandths of a token
	tokens     atomic.Int64
}

// NewThrottle returns a Throttle with all of its tokens.
func NewThrottle(maxTokens, tokenRatio float64) *Throttle {
	t := &Throttle{max: int64(maxTokens * 1000), ratio: int64(tokenRatio * 1000)}
	t.tokens.Store(t.max)
	return t
}

// fail takes a token, and reports whether there are to be no retries.
func (t *Throttle) fail() (throttled bool) { return t != nil && t.add(-1000) <= t.max/2 }

// throttled reports whether there are to be no retries.
func (t *Throttle) throttled() bool { return t != nil && t.tokens.Load() <= t.max/2 }

// succeed gives a part of a token back.
func (t *Throttle) succeed() {
	if t != nil {
		t.add(t.ratio)
	}
}

// add changes the tokens within their bounds, and returns them.
func (t *Throttle) add(n int64) int64 {
	for {
		was := t.tokens.Load()
		now := min(max(was+n, 0), t.max)
		if was == now || t.tokens.CompareAndSwap(was, now) {
			return now
		}
	}
}

// throttle returns the Throttle of the RPC's channel, or nil.
func (c *Call) throttle() *Throttle {
	l := c.link()
	if l == nil {
		return nil
	}
	return l.Throttle
}
