// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package channelmetrics

import (
	"fmt"
	"testing"

	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/xds"
)

// TestBreakerGaugeGoes: the gauge of a circuit breaker goes with its last user and its last
// RPC, whichever is later.
func TestBreakerGaugeGoes(t *testing.T) {
	shown := func() (n int) {
		sharedGauges(func(m *metric.Metric, _ int64, labels ...string) {
			if m == metric.BreakerInFlight && labels[0] == t.Name() {
				n++
			}
		})
		return n
	}
	b := counters.AcquireBreaker(t.Name(), "")
	b.Acquire(1)
	b.Unref()
	if n := shown(); n != 1 {
		t.Errorf("with an RPC in flight the breaker is shown %d times", n)
	}
	b.Release()
	if n := shown(); n != 0 {
		t.Errorf("without users and RPCs the breaker is shown %d times", n)
	}
}

// silent is a resolver without gauges.
type silent struct{}

func (silent) Gauges(metric.Emit) *xds.Client { return nil }

// TestGaugesOfOneTarget: reading the gauges of a target costs the same however many channels other
// targets have, since gauges are read by target.
func TestGaugesOfOneTarget(t *testing.T) {
	var links []*link.Link
	cost := func(targets int) float64 {
		for len(links) < targets {
			l := link.New(link.Options{Canonical: fmt.Sprint("xds:///gauges-", len(links)), Resolver: silent{}})
			l.Register()
			t.Cleanup(func() { l.Close() })
			links = append(links, l)
		}
		return testing.AllocsPerRun(10, func() {
			targetGauges("xds:///gauges-0", func(*metric.Metric, int64, ...string) {})
		})
	}
	if few, many := cost(1), cost(500); many > few+100 { // with the race detector, pools lose some at random
		t.Errorf("the gauges of a target take %v allocations among 500 targets, and %v among others", many, few)
	}
}

// TestCacheState: a resource need not have a version, which is for debugging only.
func TestCacheState(t *testing.T) {
	for _, updated := range []bool{false, true} {
		want := "nacked"
		if updated {
			want = "nacked_but_cached"
		}
		if got := cacheState(xds.ResourceKind{State: xds.Nacked, InUse: updated}); got != want {
			t.Errorf("with a version in use %t: %s, want %s", updated, got, want)
		}
	}
}
