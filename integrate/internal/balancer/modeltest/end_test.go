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

// This file has the end of a history: every connection attempt succeeds, the balancer must reach
// the expected state, and the channel closes.

// checkConverged has every connection attempt succeed, and checks that the balancer reaches the
// state of a new one.
func (t *history) checkConverged() {
	t.Logf("every connection attempt succeeds from now on")
	for _, c := range t.controlPlane.clusters {
		c.stale = true
		for _, l := range c.leaves {
			l.max = 1024
			if l.policy.Custom != nil && (l.policy.Custom.Name == string(failing) || l.policy.Custom.Name == string(needsAll)) {
				l.policy.Custom = &picker.CustomPolicy{Name: string(immediate), Config: l.policy.Custom.Config}
			}
		}
	}
	for _, r := range t.inFlight {
		t.end(r, nil)
	}
	t.inFlight = nil
	t.cancelIntercepted()
	t.push()
	t.restoreHealth()
	const soon = 40 // seconds: a failover, an ejection, delays of custom policies
	for s := 0; !t.served(); s++ {
		if s == soon {
			t.Fatalf("RPCs are not served after %d s in which every connection attempt succeeds, to clusters %s", soon, t.unserved())
			return
		}
		kit.Pass(time.Second)
	}
	t.passConnecting(connDelay + stateDelay) // a policy may still serve with an earlier picker
	for _, c := range t.controlPlane.clusters {
		for _, l := range c.leaves {
			l.switched, l.slowPolicy = false, false
		}
	}
	t.passConnecting(2*maxEjection + defaulted(t.options).FailoverTimeout)
	kit.Pass(defaulted(t.options).RetireAfter)
	t.passConnecting(2 * (connDelay + stateDelay))
	for _, c := range t.controlPlane.clusters {
		t.checkCluster(c)
		t.checkAttempts(c)
	}
	t.checkConns()
	t.checkLoads()
	t.checkIdle()
	for _, c := range t.controlPlane.clusters {
		t.checkEjection(c)
	}
	t.passConnecting(2 * maxEjection)
	for _, c := range t.controlPlane.clusters {
		t.checkReconnect(c)
	}
	for _, r := range t.waiting {
		if c := t.clusterNamed(r.cluster); c.routed && c.chosen() >= 0 {
			t.Fatalf("%v still waits after convergence, want a connection", r)
		}
	}
}

// passConnecting lets time pass while all connection attempts succeed.
func (t *history) passConnecting(d time.Duration) {
	for ; d > 0; d -= time.Second {
		t.connectAll()
		kit.Pass(time.Second)
	}
	t.connectAll()
}

// connectAll moves all SubConns as far as they go.
func (t *history) connectAll() {
	for moved := true; moved; {
		moved = false
		t.drainEvents()
		for _, c := range t.grpc.Open() {
			for c.State != connectivity.Ready && c.Step(true) {
				moved = true
			}
		}
	}
	t.checkWaiting()
}

// served makes an RPC to every cluster, and reports whether all that can be served are.
func (t *history) served() bool {
	t.connectAll()
	ok := true
	for _, c := range t.controlPlane.clusters {
		ok = t.takesRPCs(c) && ok
	}
	return ok
}

func (t *history) takesRPCs(c *modelCluster) bool {
	if !c.routed || c.chosen() < 0 {
		return true
	}
	r := t.newRPC(c.name, t.Rand.Uint64(), false)
	t.pick(r)
	if r.conn == nil {
		return false
	}
	if !t.tryUse(r) {
		return false
	}
	t.end(r, nil)
	return true
}

func (t *history) unserved() (names []string) {
	for _, c := range t.controlPlane.clusters {
		if !t.takesRPCs(c) {
			names = append(names, c.name)
		}
	}
	return names
}

// chosen is the index of the priority that RPCs use when every endpoint can be connected (A56): the
// first with an endpoint to pick, or -1.
func (c *modelCluster) chosen() int {
	return slices.IndexFunc(c.priorities(), priorityView.usable)
}

// checkIdle checks that no endpoint counts any RPC in flight after all have ended.
func (t *history) checkIdle() {
	for _, r := range slices.Concat(t.inFlight, t.holding) {
		t.end(r, nil)
	}
	t.inFlight, t.holding = nil, nil
	for a, n := range t.counts {
		if n != 0 {
			t.Fatalf("the model counts %d RPCs in flight of %v after all have ended", n, a)
		}
	}
	if n := t.lb.InFlight(); n != 0 {
		t.Fatalf("endpoints count %d RPCs in flight, want 0", n)
	}
}

// checkAttempts checks that the attempts of an RPC use different endpoints while there are any,
// with any policy. Ring hash connects only some endpoints, and custom policies do not know the
// attempts.
func (t *history) checkAttempts(c *modelCluster) {
	at := c.chosen()
	if !c.routed || at < 0 || !t.controlPlane.attempts {
		return
	}
	p := c.priorities()[at]
	if delegates(&p.leaf.Policy) || p.leaf.Policy.Hashes() || p.leaf.Policy.Subset > 0 {
		return
	}
	r, conns := t.newRPC(c.name, t.Rand.Uint64(), false), map[*modelConn]bool{}
	for range hedged.MaxAttempts {
		if t.pick(r); r.conn == nil || !t.tryUse(r) {
			t.Fatalf("attempt %d of %v has no connection after convergence: %v", r.made, r, r.err)
		}
		conns[r.conn] = true
		t.end(r, nil)
	}
	// Those whose servers push back may be left out.
	want, pushBack := min(hedged.MaxAttempts, p.usableEndpoints()), t.pushingBack(p)
	if r.attemptCtx == nil || len(conns) > want || len(conns) < min(want, max(p.usableEndpoints()-pushBack, 1)) {
		t.Fatalf("%d attempts of %v picked %d endpoints, want %d, of which %d push back", r.made, r, len(conns), want, pushBack)
	}
}

// checkCluster checks a cluster after convergence: RPCs use the priority that A56 chooses, no lower
// one is connected, and all of its endpoints are connected.
func (t *history) checkCluster(c *modelCluster) {
	if !c.routed {
		return
	}
	chosen, list := c.chosen(), c.priorities()
	for range 4 {
		r := t.newRPC(c.name, t.Rand.Uint64(), false)
		for t.pick(r); r.waiting; t.pick(r) { // the endpoint of a ring may be IDLE
			t.connectAll()
			if _, announced := t.grpc.Seen(); announced == r.seen {
				t.Fatalf("%v waits after convergence, want a connection", r)
				return
			}
		}
		switch {
		case chosen < 0 && r.conn != nil:
			t.Fatalf("%v picked %v, want an error: there is no endpoint", r, r.conn)
		case chosen < 0:
			continue
		case r.conn == nil:
			t.Fatalf("%v failed after convergence: %v", r, r.err)
		case list[chosen].find(r.conn.Data.number) == nil:
			t.Fatalf("%v picked %v, want an endpoint of priority %d (A56)", r, r.conn, chosen)
		}
		conn := r.conn
		if t.use(r); r.waiting {
			t.Fatalf("%v picked %v after convergence, want a READY connection", r, conn)
		}
	}
	if chosen < 0 {
		return
	}
	connected := map[*picker.Endpoint]bool{}
	for _, conn := range t.grpc.Open() {
		if l := t.leafOf(conn.Data.number); slices.Contains(c.leaves, l) {
			at, e := c.find(conn.Data.number)
			if e == nil || at > chosen {
				t.Fatalf("%v of a lower priority is open after its deactivation timer, want only priorities up to %d", conn, chosen)
			}
			connected[e] = conn.State == connectivity.Ready
		}
	}
	p := list[chosen]
	if !p.transparent() || p.leaf.Policy.Hashes() {
		return
	}
	for _, loc := range p.Localities {
		for _, e := range loc.Endpoints.All() {
			if e.Health != picker.Draining && !connected[e] {
				t.Fatalf("endpoint %v of priority %d, which is in use, is not connected after convergence", e.Addr, chosen)
			}
		}
	}
}

// closeAndCheck closes the channel, and checks that it has released everything.
func (t *history) closeAndCheck() {
	t.stop()
	t.drainEvents()
	for _, r := range slices.Concat(t.inFlight, t.holding) {
		t.end(r, nil)
	}
	t.drainEvents()
	t.checkShutDown(t.grpc)
	if n := breakersInUse() - t.before.breakers; n > 0 {
		t.Fatalf("%d circuit breakers are left after Close, want 0", n)
	}
	if n := int(livePolicies.Load()) - t.before.policies; n != 0 {
		t.Fatalf("%d custom policies are open after Close, want 0", n)
	}
	for a, n := range t.counts {
		if n != 0 {
			t.Fatalf("the model counts %d RPCs in flight of %v after all have ended", n, a)
		}
	}
	for _, end := range t.ends {
		end()
	}
	kit.Pass(time.Second)
	was := t.grpc.Calls
	kit.Pass(time.Hour)
	if t.grpc.Calls != was {
		t.Fatalf("balancer calls gRPC %d times after Close, want 0", t.grpc.Calls-was)
	}
}

// This file has checks after convergence, of behavior that must not depend on the history.

// checkEjection has all RPCs to one endpoint fail, and checks that outlier detection, if the
// cluster has it, ejects it (A50) with any policy.
func (t *history) checkEjection(c *modelCluster) {
	at := c.chosen()
	if !c.routed || at < 0 {
		return
	}
	p := c.priorities()[at]
	policy := &p.leaf.Policy
	if p.leaf.Outlier == nil || policy.Hashes() || policy.Kind == picker.PolicyPickFirst || policy.Subset > 0 || p.usableEndpoints() < 2 {
		return
	}
	var bad *picker.Endpoint
	for range 6 {
		if bad = t.sendRPCs(c, p, bad, 40); bad == nil {
			return
		}
		kit.Pass(time.Second)
		t.passConnecting(stateDelay)
		if t.sendRPCs(c, p, bad, 0) == nil {
			return
		}
	}
	t.Fatalf("endpoint %v of %s, all RPCs to which fail, is not ejected (A50)", bad.Addr, p.leaf.Name)
}

// sendRPCs makes n RPCs, or enough to see whether an endpoint is picked if n is 0. RPCs to the bad
// endpoint fail; if it is nil, it is the endpoint of the first. It returns the bad endpoint if it
// was picked.
func (t *history) sendRPCs(c *modelCluster, p priorityView, bad *picker.Endpoint, n int) (hit *picker.Endpoint) {
	failing := n > 0
	for range max(n, 20) {
		r := t.newRPC(c.name, t.Rand.Uint64(), false)
		if t.pick(r); r.conn == nil || !t.tryUse(r) {
			continue
		}
		e := p.find(r.conn.Data.number)
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

// tryUse has the RPC use the connection that it picked, and reports whether it could.
func (t *history) tryUse(r *modelRPC) bool {
	if t.use(r); r.waiting {
		return false
	}
	t.inFlight = t.inFlight[:len(t.inFlight)-1]
	return true
}

// checkReconnect loses the connections of a cluster, and checks that endpoints with several
// addresses connect in the order of the current configuration (A61).
func (t *history) checkReconnect(c *modelCluster) {
	at := c.chosen()
	if !c.routed || at < 0 {
		return
	}
	p := c.priorities()[at]
	if !p.transparent() || p.leaf.Policy.Hashes() {
		return
	}
	for _, conn := range t.grpc.Open() {
		if slices.Contains(c.leaves, t.leafOf(conn.Data.number)) && conn.State == connectivity.Ready {
			conn.Step(false)
		}
	}
	t.connectAll()
	for _, conn := range t.grpc.Open() {
		if e := p.find(conn.Data.number); e != nil && conn.TakesRPCs() && numberOf(e.Addr) != conn.Data.number {
			t.Fatalf("%v is READY, want a connection to the first address %v of its endpoint (A61)", conn, e.Addr)
		}
	}
}

// usableEndpoints is the number of endpoints that RPCs may use.
func (p priorityView) usableEndpoints() (n int) {
	for _, l := range p.Localities {
		for _, e := range l.Endpoints.All() {
			if e.Health != picker.Draining {
				n++
			}
		}
	}
	return n
}
