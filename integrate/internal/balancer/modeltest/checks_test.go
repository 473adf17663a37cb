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

// This file is what holds after every step, once everything has settled.

// audit checks everything there is to check.
func (t *trial) audit() {
	t.rest()
	for _, r := range t.holding {
		if t.use(r); r.waiting {
			t.sleepers = append(t.sleepers, r)
		}
	}
	t.holding = nil
	t.wakeSleepers()
	t.probeAll()
	t.rest()
	t.checkConns()
	t.checkReplacements()
	t.checkPublished()
	t.checkTries()
	t.checkBreakers()
	t.checkEjections()
	switch t.Rand.IntN(5) {
	case 0:
		t.checkStatus()
	case 1:
		t.checkReady()
	case 2:
		t.look()
	}
}

// wakeSleepers has the RPCs that wait pick again if a picker was announced since
// they last did, and checks that none of the others could have gone on: gRPC
// would let it sleep.
func (t *trial) wakeSleepers() {
	t.rouse()
	for patient := false; ; patient = true {
		r, why := t.overslept()
		if r == nil {
			return
		}
		if patient || !t.clusterNamed(r.cluster).sluggish() {
			t.Fatalf("%v waits, and nothing wakes it; it would %s now", r, why)
			return
		}
		kit.Pass(tardiness + lateness)
		t.rouse()
	}
}

// rouse has all RPCs pick again that a new picker was announced to.
func (t *trial) rouse() {
	for round, woken := 0, true; woken; round++ {
		if round == 50 {
			t.Fatalf("RPCs are woken again and again, to no avail: %v", t.sleepers)
		}
		woken = false
		sleepers := t.sleepers
		t.sleepers = nil
		for _, r := range sleepers {
			if _, announced := t.grpc.seen(); r.seen == announced {
				t.sleepers = append(t.sleepers, r)
				continue
			}
			woken = true
			t.pick(r)
			t.settle(r)
		}
		t.rest()
	}
}

// overslept returns an RPC that waits and need not, and what it would do.
func (t *trial) overslept() (r *modelRPC, why string) {
	for _, r := range t.sleepers {
		probe := *r
		t.pick(&probe)
		if probe.conn != nil {
			t.release(&probe, balancer.DoneInfo{})
		}
		switch {
		case probe.waiting || probe.seen != r.seen:
		case probe.conn == nil:
			return r, fmt.Sprint("fail: ", probe.err)
		case probe.conn.takesRPCs():
			return r, fmt.Sprint("go to ", probe.conn)
		}
	}
	return nil, ""
}

// probeAll makes an RPC to every cluster, routed or not.
func (t *trial) probeAll() {
	for _, c := range t.plane.clusters {
		r := t.newRPC(c.name, t.Rand.Uint64(), t.Rand.IntN(2) == 0)
		if t.plane.sessions && t.Rand.IntN(2) == 0 {
			t.joinSession(r)
		}
		t.pick(r)
		t.settle(r)
		t.rest()
	}
	const most = 6
	t.sleepers = t.sleepers[max(0, len(t.sleepers)-most):]
}

// settle judges what became of an RPC's pick while everything is at rest, and
// takes the RPC further.
func (t *trial) settle(r *modelRPC) {
	c := t.clusterNamed(r.cluster)
	switch {
	case r.waiting:
		t.checkSession(r, c)
		if c.routed && t.mustServe(c) && !t.hashes(c) && r.host == 0 {
			t.Fatalf("%v waits, though an endpoint can be picked", r)
		}
		t.sleepers = append(t.sleepers, r)
	case r.conn == nil:
		if !c.routed || t.refused(r) {
			return
		}
		if t.checkSession(r, c); t.mustServe(c) {
			t.Fatalf("%v failed, though an endpoint can be picked: %v", r, r.err)
		}
	default:
		t.checkSession(r, c)
		t.checkPick(r, c)
		switch t.Rand.IntN(8) {
		case 0:
			t.holding = append(t.holding, r)
			return
		}
		if t.use(r); r.waiting {
			t.sleepers = append(t.sleepers, r)
		} else if t.Rand.IntN(3) > 0 {
			t.inFlight = t.inFlight[:len(t.inFlight)-1]
			t.end(r, nil)
		}
	}
}

// checkPick checks where an RPC goes: to a connection that is READY, of an endpoint
// that the configuration has and that does not drain, of no priority below one
// that is READY (A56), unless it is the endpoint of its session (A75).
func (t *trial) checkPick(r *modelRPC, c *planeCluster) {
	l := t.leafOf(r.conn.number)
	switch {
	case !c.routed || !slices.Contains(c.leaves, l):
		t.Fatalf("%v went to %v, of cluster %s", r, r.conn, l.name)
	case !l.sluggish && !r.conn.takesRPCs():
		t.Fatalf("%v went to %v", r, r.conn)
	case l.switched || l.sluggish:
		return // an outgoing policy knows but its old list
	}
	at, e := c.find(r.conn.number)
	switch {
	case e == nil:
		t.Fatalf("%v went to %v, which was removed", r, r.conn)
	case e.Health == picker.Draining && !(l.lasting && t.isHost(r, e)):
		t.Fatalf("%v went to %v, which drains", r, r.conn)
	case !delegates(&l.policy) && !t.usable(r.conn):
		t.Fatalf("%v went to %v, whose health was not checked", r, r.conn)
	case r.authority != t.authorityFor(e):
		t.Fatalf("%v went to %v with the authority %q, of %v, want %q (A81)", r, r.conn, r.authority, e.Addr, t.authorityFor(e))
	case t.plane.sessions && t.isHost(r, e):
	default:
		for i, p := range c.priorities() {
			if i < at && t.isReady(p) {
				t.Fatalf("%v went to %v of priority %d, though priority %d is READY (A56)", r, r.conn, at, i)
			}
		}
	}
}

// mustServe reports whether RPCs of the cluster are certain to find an endpoint:
// its first priority that has not failed is READY.
func (t *trial) mustServe(c *planeCluster) bool {
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

// isReady reports whether a priority is READY as far as can be told from outside:
// what others' policies make of their connections is theirs, and outlier
// detection's ejections and subsets are not known.
func (t *trial) isReady(p tier) bool {
	if !p.transparent() {
		return false
	}
	return slices.ContainsFunc(t.grpc.open(), func(conn *modelConn) bool {
		e := p.find(conn.number)
		return e != nil && e.Health != picker.Draining && t.usable(conn)
	})
}

// usable reports whether a connection can be picked: it is READY, and its server
// SERVING if the cluster or the channel asks. Endpoints with several addresses, and other policies'
// connections, are checked by gRPC.
func (t *trial) usable(conn *modelConn) bool {
	l := t.leafOf(conn.number)
	if _, e := t.clusterOf(l).find(conn.number); e != nil && l.sentCheck > 0 && !multiAddressed(e) && !delegates(&l.sent) {
		return conn.takesRPCs() && t.grpc.backends.reports(conn, healthCheck(l.sentCheck).Service)
	}
	return conn.takesRPCs() && (t.options.HealthCheckService == "" || conn.isHealthy())
}

// hasFailed reports whether a priority is in TRANSIENT_FAILURE for certain: it has
// no endpoint, or all have failed since they were READY. Custom policies report that
// later.
func (t *trial) hasFailed(p tier) bool {
	if delegates(&p.leaf.Policy) && len(p.Localities) > 0 {
		return false
	}
	open := t.grpc.open()
	for _, loc := range p.Localities {
		for _, e := range loc.Endpoints.All() {
			if e.Health == picker.Draining {
				continue
			}
			has := func(failed bool) bool {
				return slices.ContainsFunc(open, func(conn *modelConn) bool {
					return conn.down() == failed && conn.number == numberOf(e.Addr)
				})
			}
			failed := has(true) && !has(false) // which a replacement may have, too
			if !failed || multiAddressed(e) || !p.transparent() || p.leaf.Policy.Hashes() {
				return false
			}
		}
	}
	return true
}

// hashes reports whether RPCs of the cluster may wait for a certain endpoint.
func (t *trial) hashes(c *planeCluster) bool {
	return slices.ContainsFunc(c.leaves, func(l *planeLeaf) bool { return l.policy.Hashes() })
}

// checkConns checks the SubConns that are open.
func (t *trial) checkConns() {
	byNumber := map[int]*modelConn{}
	for _, conn := range t.grpc.open() {
		l := t.leafOf(conn.number)
		if l.switched || l.sluggish {
			continue
		}
		c := t.clusterOf(l)
		_, e := c.find(conn.number)
		switch {
		case !c.routed || e == nil:
			t.Fatalf("%v is open, though its endpoint was removed", conn)
		case byNumber[conn.number] != nil && !t.isReplacement(conn, byNumber[conn.number], e):
			t.Fatalf("%v and %v are open", byNumber[conn.number], conn)
		}
		byNumber[conn.number] = conn
		if was, ok := t.drained[conn]; e.Health != picker.Draining || delegates(&l.policy) {
			delete(t.drained, conn)
		} else if !ok {
			t.drained[conn] = conn.connects
		} else if conn.connects > was {
			t.Fatalf("%v was asked to connect, though its endpoint drains (A27-CLA-8)", conn)
		}
	}
}

// isReplacement reports whether a connection may be there to replace another of the
// same endpoint's, after a change of TLS settings or, with auto_host_sni, of the hostname.
func (t *trial) isReplacement(conn, old *modelConn, e *picker.Endpoint) bool {
	return (t.options.ReconnectOnTLSChange || t.creds != nil) && e.Health != picker.Draining && !(t.usable(conn) && t.usable(old)) && t.leafOf(conn.number).sentTLS > 0
}

// checkSettings checks, in the calm, that no connection is made by TLS settings that
// are not in force any more, if the channel does not want that, or by another hostname than
// the endpoint's if the settings have demanded the hostname all the time.
func (t *trial) checkSettings() {
	for _, conn := range t.grpc.open() {
		_, e := t.clusterOf(t.leafOf(conn.number)).find(conn.number)
		if t.options.ReconnectOnTLSChange && conn.takesRPCs() && e != nil && e.Health != picker.Draining && conn.settings < t.leafOf(conn.number).sentTLS {
			t.Fatalf("%v is by TLS settings %d, and %d are in force", conn, conn.settings, t.leafOf(conn.number).sentTLS)
		}
		if e != nil {
			t.checkHostname(conn, e)
		}
	}
}

// mustBeShut checks that a balancer that was closed has left nothing.
func (t *trial) mustBeShut(cc *modelChannel) {
	for _, conn := range cc.open() {
		t.Fatalf("%v is left open", conn)
	}
	if cc.streams != 0 {
		t.Fatalf("%d streams of load reports are left open", cc.streams)
	}
}
