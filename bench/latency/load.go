// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A call is one RPC: what came of it.
type call struct {
	at      time.Duration // when it should have been sent, from the start
	lag     time.Duration // how much later it was
	took    time.Duration // from at
	backend string        // empty if it failed
}

// schedule draws the times at which RPCs are to be sent: a Poisson process, as
// independent users make it.
func schedule(rate float64, d time.Duration, rng *rand.Rand) []time.Duration {
	var at []time.Duration
	for t := 0.; ; {
		t += rng.ExpFloat64() / rate
		if t >= d.Seconds() {
			return at
		}
		at = append(at, time.Duration(t*float64(time.Second)))
	}
}

// send makes the RPCs at their times, each on a goroutine of its own, and
// returns when all are done. do makes one and returns who answered.
func send(ctx context.Context, at []time.Duration, do func(ctx context.Context, i int) (backend string, err error)) []call {
	calls := make([]call, len(at))
	var wg sync.WaitGroup
	start := time.Now()
	sent := 0
	for i, t := range at {
		if wait := t - time.Since(start); wait > 0 {
			pause(ctx, wait)
		}
		if ctx.Err() != nil {
			break
		}
		c := &calls[i]
		c.at, c.lag = t, time.Since(start)-t
		sent++
		wg.Go(func() {
			backend, err := do(ctx, i)
			c.took = time.Since(start) - t
			if err == nil {
				c.backend = backend
			}
		})
	}
	wg.Wait()
	return slices.Clip(calls[:sent])
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
