// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// This file has the checks after every step, when the balancer has no work left except timers.

// checkAll makes all checks.
func (t *history) checkAll() {
	t.drainEvents()
	for _, r := range t.holding {
		if t.use(r); r.waiting {
			t.waiting = append(t.waiting, r)
		}
	}
	t.holding = nil
	t.checkWaiting()
	t.probeAll()
	t.drainEvents()
	t.checkConns()
	t.checkPublished()
	t.checkTimeouts()
	t.checkBreakers()
	t.checkEjections()
	switch t.Rand.IntN(5) {
	case 0:
		t.checkStatus()
	case 1:
		t.checkReady()
	case 2:
		t.queryAtRest()
	}
}

// checkWaiting has waiting RPCs pick again if there is a new picker, and checks that all others
// still have to wait: gRPC would not wake them.
func (t *history) checkWaiting() {
	t.repickWoken()
	for patient := false; ; patient = true {
		r, why := t.missedWakeup()
		if r == nil {
			return
		}
		if patient || !t.clusterNamed(r.cluster).slowPolicy() {
			t.Fatalf("%v waits and there is no new picker, though a pick would now %s", r, why)
			return
		}
		kit.Pass(stateDelay + connDelay)
		t.repickWoken()
	}
}

// repickWoken has all RPCs pick again for which there is a new picker.
func (t *history) repickWoken() {
	for round, woken := 0, true; woken; round++ {
		if round == 50 {
			t.Fatalf("RPCs still wait after 50 new pickers without an event: %v", t.waiting)
		}
		woken = false
		waiting := t.waiting
		t.waiting = nil
		for _, r := range waiting {
			if _, announced := t.grpc.Seen(); r.seen == announced {
				t.waiting = append(t.waiting, r)
				continue
			}
			woken = true
			t.pick(r)
			t.checkPicked(r)
		}
		t.drainEvents()
	}
}

// missedWakeup returns an RPC that waits although a pick would end the wait, and the result of that
// pick.
func (t *history) missedWakeup() (r *modelRPC, why string) {
	for _, r := range t.waiting {
		probe := *r
		t.pick(&probe)
		if probe.conn != nil {
			t.release(&probe, balancer.DoneInfo{})
		}
		switch {
		case probe.waiting || probe.seen != r.seen:
		case probe.conn == nil:
			return r, fmt.Sprint("fail: ", probe.err)
		case probe.conn.TakesRPCs():
			return r, fmt.Sprint("go to ", probe.conn)
		}
	}
	return nil, ""
}

// probeAll makes an RPC to every cluster, routed or not.
func (t *history) probeAll() {
	for _, c := range t.controlPlane.clusters {
		r := t.newRPC(c.name, t.Rand.Uint64(), t.Rand.IntN(2) == 0)
		if t.controlPlane.sessions && t.Rand.IntN(2) == 0 {
			t.joinSession(r)
		}
		t.pick(r)
		t.checkPicked(r)
		t.drainEvents()
	}
	const most = 6
	t.waiting = t.waiting[max(0, len(t.waiting)-most):]
}

// checkPicked checks the result of an RPC's pick while the balancer is at rest, and continues the
// RPC.
func (t *history) checkPicked(r *modelRPC) {
	c := t.clusterNamed(r.cluster)
	switch {
	case r.waiting:
		t.checkSession(r, c)
		if c.routed && t.mustServe(c) && !t.hashes(c) && r.host == 0 {
			t.Fatalf("%v waits, want a connection: a priority of its cluster is READY", r)
		}
		t.waiting = append(t.waiting, r)
	case r.conn == nil:
		if !c.routed || t.refused(r) {
			return
		}
		if t.checkSession(r, c); t.mustServe(c) {
			t.Fatalf("%v failed, want a connection, since a priority of its cluster is READY: %v", r, r.err)
		}
	default:
		t.checkSession(r, c)
		t.checkDestination(r, c)
		switch t.Rand.IntN(8) {
		case 0:
			t.holding = append(t.holding, r)
			return
		}
		if t.use(r); r.waiting {
			t.waiting = append(t.waiting, r)
		} else if t.Rand.IntN(3) > 0 {
			t.inFlight = t.inFlight[:len(t.inFlight)-1]
			t.end(r, nil)
		}
	}
}

// checkDestination checks the connection that an RPC picked: it is READY, its endpoint is in the
// configuration and does not drain, and no higher priority is READY (A56), unless it is the
// endpoint of its session (A75).
func (t *history) checkDestination(r *modelRPC, c *modelCluster) {
	l := t.leafOf(r.conn.Data.number)
	switch {
	case !c.routed || !slices.Contains(c.leaves, l):
		t.Fatalf("%v picked %v, of cluster %s, to which it is not routed", r, r.conn, l.name)
	case !l.slowPolicy && !r.conn.TakesRPCs():
		t.Fatalf("%v picked %v, want a READY connection", r, r.conn)
	case l.switched || l.slowPolicy:
		return // an outgoing policy has an old list of endpoints
	}
	t.checkPushback(r, c, l)
	at, e := c.find(r.conn.Data.number)
	switch {
	case e == nil:
		t.Fatalf("%v picked %v, whose endpoint was removed", r, r.conn)
	case e.Health == picker.Draining && !(l.keepsSessions && t.isHost(r, e)):
		t.Fatalf("%v picked %v, whose endpoint drains (A27)", r, r.conn)
	case !delegates(&l.policy) && !t.usable(r.conn):
		t.Fatalf("%v picked %v, whose health check has not reported SERVING (A17)", r, r.conn)
	case r.authority != t.authorityFor(e):
		t.Fatalf("%v picked %v with authority %q for endpoint %v, want %q (A81)", r, r.conn, r.authority, e.Addr, t.authorityFor(e))
	case t.controlPlane.sessions && t.isHost(r, e):
	default:
		for i, p := range c.priorities() {
			if i < at && t.isReady(p) {
				t.Fatalf("%v picked %v of priority %d, want priority %d, which is READY (A56)", r, r.conn, at, i)
			}
		}
	}
}

// mustServe reports whether an RPC of the cluster must find an endpoint: the first priority that
// has not failed is READY.
func (t *history) mustServe(c *modelCluster) bool {
	for _, p := range c.priorities() {
		if t.isReady(p) {
			return true
		}
		if !t.hasFailed(p) {
			return false
		}
	}
	return false
}

// isReady reports whether a priority is READY as far as the model knows. It does not know the
// states of custom policies, nor ejections and subsets.
func (t *history) isReady(p priorityView) bool {
	if !p.transparent() {
		return false
	}
	return slices.ContainsFunc(t.grpc.Open(), func(conn *modelConn) bool {
		e := p.find(conn.Data.number)
		return e != nil && e.Health != picker.Draining && t.usable(conn)
	})
}

// usable reports whether a connection can be picked: it is READY, and its server is SERVING if the
// cluster or the channel checks health. gRPC checks endpoints with several addresses and the
// connections of custom policies.
func (t *history) usable(conn *modelConn) bool {
	l := t.leafOf(conn.Data.number)
	if _, e := t.clusterOf(l).find(conn.Data.number); e != nil && l.sentCheck > 0 && !multiAddressed(e) && !delegates(&l.sent) {
		return conn.TakesRPCs() && t.backends.reports(conn, healthCheck(l.sentCheck).Service)
	}
	return conn.TakesRPCs() && (t.options.HealthCheckService == "" || conn.Served())
}

// hasFailed reports whether a priority must be in TRANSIENT_FAILURE: it has no endpoint, or all
// have failed since they were READY. Custom policies report failures later.
func (t *history) hasFailed(p priorityView) bool {
	if delegates(&p.leaf.Policy) && len(p.Localities) > 0 {
		return false
	}
	open := t.grpc.Open()
	for _, loc := range p.Localities {
		for _, e := range loc.Endpoints.All() {
			if e.Health == picker.Draining {
				continue
			}
			has := func(failed bool) bool {
				return slices.ContainsFunc(open, func(conn *modelConn) bool {
					return isDown(conn) == failed && conn.Data.number == numberOf(e.Addr)
				})
			}
			failed := has(true) && !has(false)
			if !failed || multiAddressed(e) || !p.transparent() || p.leaf.Policy.Hashes() {
				return false
			}
		}
	}
	return true
}

// hashes reports whether RPCs of the cluster may wait for one endpoint.
func (t *history) hashes(c *modelCluster) bool {
	return slices.ContainsFunc(c.leaves, func(l *modelLeaf) bool { return l.policy.Hashes() })
}

// checkConns checks the SubConns that are open.
func (t *history) checkConns() {
	byNumber := map[int]*modelConn{}
	for _, conn := range t.grpc.Open() {
		l := t.leafOf(conn.Data.number)
		if l.switched || l.slowPolicy {
			continue
		}
		c := t.clusterOf(l)
		_, e := c.find(conn.Data.number)
		switch {
		case !c.routed || e == nil:
			t.Fatalf("%v is open, want it shut down: its endpoint was removed", conn)
		case byNumber[conn.Data.number] != nil:
			t.Fatalf("%v and %v are open, want one connection for an endpoint", byNumber[conn.Data.number], conn)
		}
		byNumber[conn.Data.number] = conn
		if was, ok := t.drained[conn]; e.Health != picker.Draining || delegates(&l.policy) {
			delete(t.drained, conn)
		} else if !ok {
			t.drained[conn] = conn.Connects
		} else if conn.Connects > was {
			t.Fatalf("%v was asked to connect, want no new connections to an endpoint that drains (A27-CLA-8)", conn)
		}
	}
}

// checkShutDown checks that a closed balancer has closed its SubConns and streams.
func (t *history) checkShutDown(cc *modelChannel) {
	for _, conn := range cc.Open() {
		t.Fatalf("%v is open after Close", conn)
	}
	if cc.Streams != 0 {
		t.Fatalf("%d streams of load reports are open after Close, want 0", cc.Streams)
	}
}
