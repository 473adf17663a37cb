// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"testing"

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
		if err != nil {
			t.Fatal(err)
		}
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
	breakers.mu.Lock()
	defer breakers.mu.Unlock()
	for key := range breakers.m {
		if key.cluster == "keeps" {
			t.Error("the breaker is kept without users or RPCs in flight")
		}
	}
}

// TestBreakerOfPair: a cluster's circuit breaker is another one if its EDS service is another,
// and the same one in all channels (A32, T-CB-2).
func TestBreakerOfPair(t *testing.T) {
	one, same := acquireBreaker(t.Name(), "a"), acquireBreaker(t.Name(), "a")
	service, cluster := acquireBreaker(t.Name(), "b"), acquireBreaker(t.Name()+"2", "a")
	defer func() {
		for _, b := range []*breaker{one, same, service, cluster} {
			b.release()
		}
	}()
	if one != same || one == service || one == cluster {
		t.Errorf("the same pair has the same breaker: %v, another service: %v, another cluster: %v; want true, false, false",
			one == same, one == service, one == cluster)
	}
}
