// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/picker"
)

// upTo returns the numbers from first on that are below end.
func upTo(first, end int) (numbers []int) {
	for i := first; i < end; i++ {
		numbers = append(numbers, i)
	}
	return numbers
}

// asked returns which of the first n endpoints were asked to connect.
func (cc *fakeCC) asked(n int) (numbers []int) {
	for i := range n {
		if cc.has(i) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// TestConnectRate: sixteen endpoints are asked to connect at once, in an order of the
// channel's own, and then as many a second as the rate says; without a rate all are.
func TestConnectRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		start := func(opts Config) *fakeCC {
			b, cc := newTestLB(t, opts)
			b.set(configOf(clusterOf("c", prio(eps(upTo(0, n)...)))))
			return cc
		}
		if got := len(start(Config{}).asked(n)); got != n {
			t.Errorf("without a rate %d endpoints are asked at once, want all %d", got, n)
		}
		opts := Config{ConnectRate: 10, FailoverTimeout: time.Hour}
		a, b := start(opts), start(opts)
		first, other := a.asked(n), b.asked(n)
		if len(first) != connectBurst || len(other) != connectBurst || slices.Equal(first, other) {
			t.Errorf("%v and %v are asked at once, want %d each, and not the same", first, other, connectBurst)
		}
		for s := 1; s <= 8; s++ {
			pass(time.Second)
			if got, want := len(a.asked(n)), min(connectBurst+10*s, n); got != want {
				t.Errorf("after %d s %d were asked, want %d", s, got, want)
			}
		}
		pass(time.Second)
		if got := len(a.asked(n)); got != n {
			t.Errorf("at last %d were asked, want %d", got, n)
		}
	})
}

// TestConnectRateMeetsFailover: a slow rate does not make a priority look slow (A56): all
// of its endpoints are asked within half the failover timeout, and the last one of them
// may still be the one that connects. Dead ones are found out at once.
func TestConnectRateMeetsFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		b, cc := newTestLB(t, Config{ConnectRate: 1})
		b.set(configOf(clusterOf("c", prio(eps(upTo(0, n)...)), prio(eps(1000)))))
		before := cc.asked(n)
		pass(5 * time.Second)
		if got := len(cc.asked(n)); got != n || cc.has(1000) {
			t.Fatalf("half the timeout is over, and %d of %d were asked; the next priority: %v", got, n, cc.has(1000))
		}
		last := slices.IndexFunc(upTo(0, n), func(i int) bool { return !slices.Contains(before, i) })
		b.to(cc.conn(t, last), connecting)
		b.to(cc.conn(t, last), ready)
		pass(quorumTime)
		if _, err := b.pick(); err != nil || cc.has(1000) {
			t.Errorf("Pick() = %v with an endpoint READY; the next priority was asked: %v", err, cc.has(1000))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		b, cc := newTestLB(t, Config{ConnectRate: 1})
		b.set(configOf(clusterOf("c", prio(eps(upTo(0, n)...)), prio(eps(1000)))))
		begin := time.Now()
		for failed := map[int]bool{}; len(failed) < n; {
			before := len(failed)
			for _, i := range cc.asked(n) {
				if !failed[i] {
					failed[i] = true
					b.to(cc.conn(t, i), failure)
				}
			}
			if len(failed) == before {
				t.Fatalf("after %d have failed no other one is asked", before)
			}
		}
		if !cc.has(1000) || time.Since(begin) > time.Millisecond {
			t.Errorf("all %d have failed after %v; the next priority was asked: %v", n, time.Since(begin), cc.has(1000))
		}
	})
}

// TestConnectRateMeetsUpdates: who is removed or drains while it waits is not asked; a
// priority that is retired asks nobody, and goes on when it is needed again.
func TestConnectRateMeetsUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{ConnectRate: 1, FailoverTimeout: time.Hour})
		b.set(configOf(clusterOf("c", prio(eps(upTo(0, 40)...)))))
		asked := cc.asked(40)
		b.set(configOf(clusterOf("c", prio(eps(asked...)))))
		pass(time.Hour)
		if got := cc.asked(40); !slices.Equal(got, asked) {
			t.Errorf("%v were asked, want those that stayed, %v", got, asked)
		}
		b.set(configOf(clusterOf("c", prio(eps(1000)), prio(eps(upTo(0, 80)...)))))
		b.to(cc.conn(t, 1000), ready)
		pass(time.Second)
		before := len(cc.asked(80))
		pass(time.Minute)
		if got := len(cc.asked(80)); got != before {
			t.Errorf("a priority that is not needed asks %d endpoints more", got-before)
		}
		b.to(cc.conn(t, 1000), failure)
		pass(time.Hour)
		if got := len(cc.asked(80)); got != 80 {
			t.Errorf("a priority that is needed again has asked %d of 80", got)
		}
	})
}

// TestConnectRateWhileServing: a priority that begins to serve has no second burst, though
// it was asked faster until then.
func TestConnectRateWhileServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{ConnectRate: 10})
		b.set(configOf(clusterOf("c", prio(eps(upTo(0, 100)...)))))
		for _, i := range cc.asked(100)[:quorumSize] {
			b.to(cc.conn(t, i), ready)
		}
		for s := range 5 {
			if got, want := len(cc.asked(100)), connectBurst+10*s; got < want || got > want+1 {
				t.Errorf("after %d s %d were asked, want %d", s, got, want)
			}
			pass(time.Second)
		}
	})
}

// TestConnectRateMeetsPolicies: another policy that connects endpoints by itself has no
// pacer go on behind it.
func TestConnectRateMeetsPolicies(t *testing.T) {
	for _, kind := range []picker.PolicyKind{picker.PolicyRingHash, picker.PolicyPickFirst} {
		synctest.Test(t, func(t *testing.T) {
			b, cc := newTestLB(t, Config{ConnectRate: 1, FailoverTimeout: time.Hour})
			c := clusterOf("c", prio(eps(upTo(0, 40)...)))
			b.set(configOf(c))
			b.to(cc.conn(t, cc.asked(40)[0]), ready)
			next := *c
			next.Leaves = slices.Clone(c.Leaves)
			next.Leaves[0].Policy = picker.Policy{Kind: kind}
			b.set(configOf(&next))
			before := len(cc.asked(40))
			pass(10 * time.Minute)
			if got := len(cc.asked(40)); got > before {
				t.Errorf("policy %v: %d endpoints were asked after the switch", kind, got-before)
			}
		})
	}
}

// TestQuorumMeetsFailover: the failover timer does not expire while the quorum gathers.
func TestQuorumMeetsFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{ConnectRate: 100})
		b.set(configOf(clusterOf("c", prio(eps(upTo(0, 20)...)), prio(eps(1000)))))
		pass(10*time.Second - quorumTime/2)
		b.to(cc.conn(t, 0), ready)
		pass(quorumTime / 2)
		b.flush()
		if got, err := b.pick(); err != nil || cc.has(1000) {
			t.Errorf("Pick() = %v, %v, want endpoint 0; the next priority was asked: %v", got, err, cc.has(1000))
		}
	})
}

// TestQuorumMeetsUpdates: endpoints that are READY serve on when an update moves them to
// another priority with many new ones, and when it makes the policy another.
func TestQuorumMeetsUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{ConnectRate: 100})
		b.set(configOf(clusterOf("c", prio(eps(0, 1, 2)))))
		for i := range 3 {
			b.to(cc.conn(t, i), ready)
		}
		moved := prio(eps(upTo(0, 20)...))
		moved.Localities[0].ID = picker.LocalityID{Zone: "another"}
		b.set(configOf(clusterOf("c", moved)))
		b.flush()
		if _, err := b.pick(); err != nil {
			t.Errorf("Pick() after the update: %v", err)
		}
	})
}

// TestQuorum: RPCs wait until eight endpoints are READY, or all that have not failed, or
// for 20 ms; and only at the start.
func TestQuorum(t *testing.T) {
	for _, tt := range []struct {
		name               string
		n, failed, ready   int
		wait               time.Duration
		flows              bool
		withoutRate, again bool
	}{
		{name: "seven", n: 20, ready: 7},
		{name: "eight", n: 20, ready: 8, flows: true},
		{name: "not yet", n: 20, ready: 1, wait: quorumTime - time.Millisecond},
		{name: "time", n: 20, ready: 1, wait: quorumTime, flows: true},
		{name: "not all", n: 3, ready: 2},
		{name: "all", n: 3, ready: 3, flows: true},
		{name: "the others have failed", n: 3, failed: 2, ready: 1, flows: true},
		{name: "no rate", n: 20, ready: 1, withoutRate: true, flows: true},
		{name: "again", n: 20, ready: 1, again: true, flows: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := Config{ConnectRate: 1e6}
				if tt.withoutRate {
					opts.ConnectRate = 0
				}
				b, cc := newTestLB(t, opts)
				b.set(configOf(clusterOf("c", prio(eps(upTo(0, tt.n)...)))))
				pass(time.Millisecond)
				if tt.again {
					for i := range tt.n {
						b.to(cc.conn(t, i), ready)
					}
					for i := range tt.n {
						b.to(cc.conn(t, i), connectivity.Idle)
					}
				}
				for i := range tt.failed {
					b.to(cc.conn(t, tt.n-1-i), failure)
				}
				for i := range tt.ready {
					b.to(cc.conn(t, i), ready)
				}
				pass(tt.wait)
				b.flush()
				_, err := b.pick()
				if flows := err == nil; flows != tt.flows || !flows && !errors.Is(err, balancer.ErrNoSubConnAvailable) {
					t.Errorf("Pick() = %v, want an endpoint: %v", err, tt.flows)
				}
			})
		})
	}
}

// TestConnectRateExtremes: no rate is too small or too large to compute with.
func TestConnectRateExtremes(t *testing.T) {
	for _, rate := range []float64{math.SmallestNonzeroFloat64, 1e-12, 1e12, math.Inf(1), math.NaN(), -1} {
		synctest.Test(t, func(t *testing.T) {
			b, cc := newTestLB(t, Config{ConnectRate: rate})
			b.set(configOf(clusterOf("c", prio(eps(upTo(0, 40)...)))))
			pass(5 * time.Second)
			if got := len(cc.asked(40)); got != 40 {
				t.Errorf("rate %v: %d of 40 were asked within half the failover timeout", rate, got)
			}
		})
	}
}
