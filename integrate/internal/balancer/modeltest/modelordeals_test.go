// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// This file is what is tried once everything has come to rest: things that must
// work whatever was before.

// eject has all RPCs to one endpoint fail, and checks that outlier detection, if the
// cluster has it, keeps it from getting more (A50), whoever picks.
func (t *trial) eject(c *planeCluster) {
	at := c.chosen()
	if !c.routed || at < 0 {
		return
	}
	p := c.priorities()[at]
	policy := &p.leaf.Policy
	if p.leaf.Outlier == nil || policy.Hashes() || policy.Kind == picker.PolicyPickFirst || policy.Subset > 0 || p.usables() < 2 {
		return
	}
	var bad *picker.Endpoint
	for range 6 {
		if bad = t.load(c, p, bad, 40); bad == nil {
			return
		}
		kit.Pass(time.Second)
		t.calm(tardiness)
		if t.load(c, p, bad, 0) == nil {
			return
		}
	}
	t.Fatalf("endpoint %v of %s, all RPCs to which fail, gets RPCs for ever (A50)", bad.Addr, p.leaf.Name)
}

// load makes n RPCs, or as many as it takes to see whether an endpoint is picked,
// of which those to the bad endpoint fail; if there is none yet, it is that of the
// first. It returns the bad endpoint if RPCs went there.
func (t *trial) load(c *planeCluster, p tier, bad *picker.Endpoint, n int) (hit *picker.Endpoint) {
	failing := n > 0
	for range max(n, 20) {
		r := t.newRPC(c.name, t.Rand.Uint64(), false)
		if t.pick(r); r.conn == nil || !t.used(r) {
			continue
		}
		e := p.find(r.conn.number)
		if bad == nil {
			bad = e
		}
		var err error
		if e == bad {
			hit = bad
			if failing {
				err = status.Error(codes.Unavailable, "failed")
			}
		}
		t.end(r, err)
	}
	return hit
}

// used has the RPC use the connection that it was given, and reports whether it
// could.
func (t *trial) used(r *modelRPC) bool {
	if t.use(r); r.waiting {
		return false
	}
	t.inFlight = t.inFlight[:len(t.inFlight)-1]
	return true
}

// reconnect loses the connections of a cluster, and checks that endpoints with
// several addresses are connected in the order that the configuration has now (A61).
func (t *trial) reconnect(c *planeCluster) {
	at := c.chosen()
	if !c.routed || at < 0 {
		return
	}
	p := c.priorities()[at]
	if !p.transparent() || p.leaf.Policy.Hashes() {
		return
	}
	for _, conn := range t.grpc.open() {
		if slices.Contains(c.leaves, t.leafOf(conn.number)) && conn.state == connectivity.Ready {
			conn.step(false)
		}
	}
	t.rise()
	for _, conn := range t.grpc.open() {
		if e := p.find(conn.number); e != nil && conn.takesRPCs() && numberOf(e.Addr) != conn.number {
			t.Fatalf("%v is connected anew, though the endpoint's first address is %v (A61)", conn, e.Addr)
		}
	}
}

// usables is how many endpoints RPCs may go to.
func (p tier) usables() (n int) {
	for _, l := range p.Localities {
		for _, e := range l.Endpoints.All() {
			if e.Health != picker.Draining {
				n++
			}
		}
	}
	return n
}
