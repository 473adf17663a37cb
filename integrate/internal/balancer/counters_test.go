// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"math"
	"testing"
	"testing/synctest"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/picker"
)

// TestBreakerKeepsCount: a circuit breaker knows of RPCs in flight when the cluster
// changes its LRS server, and when it leaves the routes for a while (T-CB-2).
func TestBreakerKeepsCount(t *testing.T) {
	limited := func(server string) *picker.Cluster {
		c := clusterOf("keeps", prio(eps(1)))
		c.Leaves[0].MaxRequests, c.Leaves[0].Load.Server = 1, server
		return c
	}
	for name, changes := range map[string][]*picker.Cluster{
		"another LRS server": {limited("a"), limited("b")},
		"reports are off":    {limited("a"), limited("")},
		"gone and back":      {limited("a"), clusterOf("other", prio(eps(2))), limited("a")},
	} {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(changes[0]))
		cc.conn(t, 1).to(ready)
		b.flush()
		res, err := b.picker.Pick(pickInfo())
		kit.Must(t, err)
		for _, c := range changes[1:] {
			b.Update(configOf(c))
			b.flush()
		}
		cc.conn(t, 1).to(ready)
		b.flush()
		if _, err := b.pick(); err == nil {
			t.Errorf("%s: max_requests is 1, one RPC is in flight, and another was admitted", name)
		}
		res.Done(endedOK)
		wantPick(t, b, 1)
		b.Close()
	}
	counters.Breakers(func(cluster, _ string, _ *counters.Breaker) {
		if cluster == "keeps" {
			t.Error("the breaker is kept without users or RPCs in flight")
		}
	})
}

// TestBreakerBeforePublication checks that an RPC counts for its EDS service if its pick precedes the
// publication of updates that change the EDS service and change it back (A32, T-CB-2).
func TestBreakerBeforePublication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		defer b.Close()
		update := func(service string) {
			c := clusterOf("early", prio(eps(1)))
			c.Leaves[0].MaxRequests, c.Leaves[0].Service = 1, service
			b.Update(configOf(c))
		}
		update("one")
		cc.conn(t, 1).to(ready)
		b.flush()
		update("two")
		update("one")
		res, err := b.picker.Pick(pickInfo())
		kit.Must(t, err)
		b.flush()
		if _, err := b.pick(); err == nil {
			t.Error("max_requests is 1, one RPC is in flight, and another was admitted")
		}
		res.Done(endedOK)
		wantPick(t, b, 1)
	})
}

// TestBreakerWithoutLimit checks that RPCs of a cluster without a limit are not counted, and that
// RPCs that began without a limit do not count for a limit that is set later, and vice versa.
func TestBreakerWithoutLimit(t *testing.T) {
	limited := func(limit uint32) *picker.Config {
		c := clusterOf("unlimited", prio(eps(1)))
		c.Leaves[0].MaxRequests = limit
		return configOf(c)
	}
	b, cc := newTestLB(t, Config{})
	update := func(limit uint32) {
		b.Update(limited(limit))
		cc.conn(t, 1).to(ready)
		b.flush()
	}
	start := func() (finish func()) {
		t.Helper()
		res, err := b.picker.Pick(pickInfo())
		kit.Must(t, err)
		return func() { res.Done(endedOK) }
	}
	refused := func(when string) {
		t.Helper()
		if _, err := b.pick(); err == nil {
			t.Errorf("%s: max_requests is 1, one RPC is in flight, and another was admitted", when)
		}
	}
	update(math.MaxUint32)
	unlimited := start()
	counters.Breakers(func(cluster, _ string, _ *counters.Breaker) {
		if cluster == "unlimited" {
			t.Error("a cluster without a limit has a breaker")
		}
	})
	update(1)
	one := start()
	refused("after a change to 1")
	unlimited()
	refused("after the end of an RPC from before")
	update(math.MaxUint32)
	start()()
	update(1)
	refused("after a change to no limit and back")
	one()
	start()()
	b.Close()
}
