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

// This file is how a history ends: calm weather, in which everything must come to
// what it should be, and then the end of the channel.

// converge has every connection attempt succeed, and checks that the balancer comes
// to where a fresh one would be.
func (t *trial) converge() {
	t.Logf("calm: every connection comes up")
	for _, c := range t.plane.clusters {
		c.stale = true
		for _, l := range c.leaves {
			l.max = 1024
			if l.policy.Custom != nil && (l.policy.Custom.Name == string(failing) || l.policy.Custom.Name == string(desperate)) {
				l.policy.Custom = &picker.CustomPolicy{Name: string(prompt), Config: l.policy.Custom.Config}
			}
		}
	}
	for _, r := range t.inFlight {
		t.end(r, nil)
	}
	t.inFlight = nil
	t.landAll()
	t.push()
	t.heal()
	const soon = 40 // seconds: a failover, an ejection, policies of others
	for s := 0; !t.served(); s++ {
		if s == soon {
			t.Fatalf("RPCs are not served within %d s of calm: %s", soon, t.unserved())
			return
		}
		kit.Pass(time.Second)
	}
	t.calm(lateness + tardiness) // RPCs may be served by what a policy said before
	for _, c := range t.plane.clusters {
		for _, l := range c.leaves {
			l.switched, l.sluggish = false, false
		}
	}
	t.calm(2*maxEjection + defaulted(t.options).FailoverTimeout)
	kit.Pass(defaulted(t.options).RetireAfter)
	t.calm(2 * (lateness + tardiness))
	for _, c := range t.plane.clusters {
		t.checkCalm(c)
		t.checkAttempts(c)
	}
	t.checkConns()
	t.checkSettings()
	t.checkLoads()
	t.checkIdle()
	for _, c := range t.plane.clusters {
		t.eject(c)
	}
	t.calm(2 * maxEjection)
	for _, c := range t.plane.clusters {
		t.reconnect(c)
	}
	for _, r := range t.sleepers {
		if c := t.clusterNamed(r.cluster); c.routed && c.chosen() >= 0 {
			t.Fatalf("%v still waits", r)
		}
	}
}

// calm lets time pass in which connections come up as they are asked for.
func (t *trial) calm(d time.Duration) {
	for ; d > 0; d -= time.Second {
		t.rise()
		kit.Pass(time.Second)
	}
	t.rise()
}

// rise takes all SubConns as far as they come.
func (t *trial) rise() {
	for moved := true; moved; {
		moved = false
		t.rest()
		for _, c := range t.grpc.open() {
			for c.state != connectivity.Ready && c.step(true) {
				moved = true
			}
		}
	}
	t.wakeSleepers()
}

// served makes an RPC to every cluster and reports whether all that can be served
// are.
func (t *trial) served() bool {
	t.rise()
	ok := true
	for _, c := range t.plane.clusters {
		ok = t.takesRPCs(c) && ok
	}
	return ok
}

func (t *trial) takesRPCs(c *planeCluster) bool {
	if !c.routed || c.chosen() < 0 {
		return true
	}
	r := t.newRPC(c.name, t.Rand.Uint64(), false)
	t.pick(r)
	if r.conn == nil {
		return false
	}
	if !t.used(r) {
		return false
	}
	t.end(r, nil)
	return true
}

func (t *trial) unserved() (names []string) {
	for _, c := range t.plane.clusters {
		if !t.takesRPCs(c) {
			names = append(names, c.name)
		}
	}
	return names
}

// chosen is the index of the priority that RPCs go to when everything can be
// connected (A56): the first with an endpoint to pick. It is -1 if there is none.
func (c *planeCluster) chosen() int {
	return slices.IndexFunc(c.priorities(), tier.usable)
}

// checkIdle checks that once all RPCs have ended no endpoint counts any, wherever they have
// moved.
func (t *trial) checkIdle() {
	for _, r := range slices.Concat(t.inFlight, t.holding) {
		t.end(r, nil)
	}
	t.inFlight, t.holding = nil, nil
	for a, n := range t.counts {
		if n != 0 {
			t.Fatalf("the model has lost count of %v", a)
		}
	}
	if n := t.lb.InFlight(); n != 0 {
		t.Fatalf("endpoints count %d RPCs in flight, and there are none", n)
	}
}

// checkAttempts checks that attempts at an RPC go to different endpoints while there are any,
// whatever the policy draws. Of a ring, only some are connected, and others' policies know
// nothing of attempts.
func (t *trial) checkAttempts(c *planeCluster) {
	at := c.chosen()
	if !c.routed || at < 0 || !t.plane.attempts {
		return
	}
	p := c.priorities()[at]
	if delegates(&p.leaf.Policy) || p.leaf.Policy.Hashes() || p.leaf.Policy.Subset > 0 {
		return
	}
	r, conns := t.newRPC(c.name, t.Rand.Uint64(), false), map[*modelConn]bool{}
	for range hedged.MaxAttempts {
		if t.pick(r); r.conn == nil || !t.used(r) {
			t.Fatalf("attempt %d at %v has no connection in the calm: %v", r.made, r, r.err)
		}
		conns[r.conn] = true
		t.end(r, nil)
	}
	if want := min(hedged.MaxAttempts, p.usables()); r.attempts == nil || len(conns) != want {
		t.Fatalf("%d attempts at %v went to %d endpoints, want %d", r.made, r, len(conns), want)
	}
}

// checkCalm checks a cluster after a long calm: RPCs go to the priority that A56
// chooses, it alone is connected, and all of its endpoints are that are to be.
func (t *trial) checkCalm(c *planeCluster) {
	if !c.routed {
		return
	}
	chosen, list := c.chosen(), c.priorities()
	for range 4 {
		r := t.newRPC(c.name, t.Rand.Uint64(), false)
		for t.pick(r); r.waiting; t.pick(r) { // a ring's endpoint may be asleep
			t.rise()
			if _, announced := t.grpc.seen(); announced == r.seen {
				t.Fatalf("%v waits in the calm", r)
				return
			}
		}
		switch {
		case chosen < 0 && r.conn != nil:
			t.Fatalf("%v went to %v, though there is no endpoint", r, r.conn)
		case chosen < 0:
			continue
		case r.conn == nil:
			t.Fatalf("%v failed in the calm: %v", r, r.err)
		case list[chosen].find(r.conn.number) == nil:
			t.Fatalf("%v went to %v, which is not of priority %d (A56)", r, r.conn, chosen)
		}
		conn := r.conn
		if t.use(r); r.waiting {
			t.Fatalf("%v went to %v in the calm", r, conn)
		}
	}
	if chosen < 0 {
		return
	}
	connected := map[*picker.Endpoint]bool{}
	for _, conn := range t.grpc.open() {
		if l := t.leafOf(conn.number); slices.Contains(c.leaves, l) {
			at, e := c.find(conn.number)
			if e == nil || at > chosen {
				t.Fatalf("%v is open after the time of retirement; RPCs go to priority %d", conn, chosen)
			}
			connected[e] = conn.state == connectivity.Ready
		}
	}
	p := list[chosen]
	if !p.transparent() || p.leaf.Policy.Hashes() {
		return
	}
	for _, loc := range p.Localities {
		for _, e := range loc.Endpoints.All() {
			if e.Health != picker.Draining && !connected[e] {
				t.Fatalf("endpoint %v of priority %d was not connected in the calm", e.Addr, chosen)
			}
		}
	}
}

// finish closes the channel, and checks that nothing is left.
func (t *trial) finish() {
	t.stop()
	t.rest()
	for _, r := range slices.Concat(t.inFlight, t.holding) {
		t.end(r, nil)
	}
	t.rest()
	t.mustBeShut(t.grpc)
	if n := breakersInUse() - t.before.breakers; n > 0 {
		t.Fatalf("%d circuit breakers are left", n)
	}
	if n := int(livePolicies.Load()) - t.before.policies; n != 0 {
		t.Fatalf("%d custom policies are left", n)
	}
	for a, n := range t.counts {
		if n != 0 {
			t.Fatalf("the model has lost count of %v", a)
		}
	}
	for _, end := range t.ends {
		end()
	}
	kit.Pass(time.Second)
	was := t.grpc.actions
	kit.Pass(time.Hour)
	if t.grpc.actions != was {
		t.Fatalf("the balancer goes on after Close")
	}
}

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
