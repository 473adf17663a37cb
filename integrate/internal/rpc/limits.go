// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"sync/atomic"

	"github.com/xdslb/xdslb/picker"
)

// A Budget bounds how many retries of a cluster's RPCs are active at a time, so that retries
// add little to the load of a cluster that fails (Envoy's retry_budget and max_retries). A
// retry is active from its backoff to its end, or until a stream has response headers. A nil
// Budget has no bound.
//
// Envoy's percentage applies to all RPCs in flight. Here it applies to the RPCs that are not
// retries: 20 % allow 1.2 attempts for each RPC.
type Budget struct {
	Limit    *picker.RetryLimit
	InFlight *picker.Breaker // counts the attempts in flight
	Active   *atomic.Int64   // retries, in the process
}

// acquire reports whether another retry is allowed. The retry is then active until release.
func (b *Budget) acquire() bool {
	if b == nil {
		return true
	}
	for {
		n := b.Active.Load()
		rest := b.InFlight.InFlight() - n
		if n >= max(int64(b.Limit.Min), int64(b.Limit.Percent/100*float64(rest))) {
			return false
		}
		if b.Active.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release ends a retry that acquire admitted.
func (b *Budget) release() {
	if b != nil {
		b.Active.Add(-1)
	}
}

// A Throttle is the retryThrottling of A6: each failure that could be retried takes a token,
// each RPC that succeeds returns a part of a token, and while at most half of the tokens are
// left, retries are suspended. It applies to the retries of a channel's interceptors. gRPC has
// a throttle of its own for the retries of the service config. Any number of goroutines may use
// it. A nil Throttle does not limit retries.
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

// fail takes a token, and reports whether retries are suspended.
func (t *Throttle) fail() (throttled bool) { return t != nil && t.add(-1000) <= t.max/2 }

// throttled reports whether retries are suspended.
func (t *Throttle) throttled() bool { return t != nil && t.tokens.Load() <= t.max/2 }

// succeed returns a part of a token.
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
