// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing/synctest"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/bench/kit"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/picker"
)

// This file has events in which several features meet.

// combinedEvents follow some steps. They draw from a source of their own, so that they do not change
// what other events draw.
var combinedEvents = []op{
	{4, (*trial).cut},
	{4, (*trial).updateWithoutPause},
	{3, (*trial).interleaveSessions},
	{3, (*trial).failUnsent},
	{3, (*trial).failAfterReturn},
	{2, (*trial).panicInRetries},
	{1, (*trial).panicInAttempt},
}

// combine has one of combinedEvents happen, or none.
func (t *trial) combine() {
	own := t.Rand
	t.Rand = rand.New(rand.NewPCG(t.Step, 1))
	if t.Rand.IntN(3) == 0 {
		t.rest()
		t.happen(combinedEvents)
	}
	t.Rand = own
}

// cut resets the connections to the priority in use of a cluster. As with real peers, the streams of
// health checks end before gRPC reports that the connections are lost. Until the connections have
// failed to reconnect, the priority is CONNECTING: RPCs wait, and neither fail (A17: a health check
// is part of the connection that it is made on) nor go to another priority (A56).
func (t *trial) cut() {
	c := t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))]
	if !c.routed || !t.mustServe(c) || t.hashes(c) {
		return
	}
	at := t.firstReady(c)
	var conns []*modelConn
	for _, conn := range t.grpc.open() {
		if conn.takesRPCs() && c.priorities()[at].find(conn.number) != nil {
			conns = append(conns, conn)
		}
	}
	t.Logf("the connections to priority %d of %s are reset: %v", at, c.name, conns)
	for _, conn := range conns {
		t.grpc.backends.end(conn)
	}
	synctest.Wait()
	t.checkReconnecting(c, at)
	if t.Rand.IntN(2) == 0 {
		kit.Pass(lb.LossDelay / 2)
		t.checkReconnecting(c, at)
	}
	for _, conn := range conns {
		conn.step(false)
	}
	t.checkReconnecting(c, at)
	t.rest()
	t.checkReconnecting(c, at)
}

// firstReady returns the index of the first priority that is READY for certain.
func (t *trial) firstReady(c *planeCluster) int {
	for i, p := range c.priorities() {
		if t.isReady(p) {
			return i
		}
	}
	return -1
}

// checkReconnecting makes an RPC to a cluster that has just lost the connections of a priority.
func (t *trial) checkReconnecting(c *planeCluster, priority int) {
	r := t.newRPC(c.name, t.Rand.Uint64(), false)
	switch t.pick(r); {
	case r.waiting:
		t.sleepers = append(t.sleepers, r)
	case r.conn != nil:
		t.holding = append(t.holding, r)
		if at, _ := c.find(r.conn.number); at > priority {
			t.Fatalf("%v went to %v of priority %d, while the endpoints of priority %d reconnect (A56)", r, r.conn, at, priority)
		}
	case !t.refused(r):
		t.Fatalf("%v failed while the endpoints of priority %d reconnect (A17): %v", r, priority, r.err)
	}
}

// updateWithoutPause sends several updates at once, most of which change the EDS service name of one
// cluster, while RPCs pick. Picks use the first of the configurations until the others are published,
// and custom policies hear of none until then.
func (t *trial) updateWithoutPause() {
	t.Logf("updates without a pause:")
	c := t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))]
	l := c.leaves[t.Rand.IntN(len(c.leaves))]
	if c.routed && t.Rand.IntN(3) == 0 {
		t.Logf("%s: a custom policy, whose endpoints connect", l.name)
		l.policy, c.stale = picker.Policy{Kind: picker.PolicyCustom, Flat: true, Custom: &picker.CustomPolicy{Name: string(prompt), Config: json.RawMessage(`{}`)}}, true
		t.push()
		t.rise()
	}
	limits := map[string]uint32{} // the highest max_requests that may be in force
	defer holdPolicies()()
	t.push()
	for range 1 + t.Rand.IntN(3) {
		for _, c := range t.plane.clusters {
			for _, l := range c.leaves {
				limits[l.name] = max(limits[l.name], l.max)
			}
		}
		if t.Rand.IntN(4) == 0 {
			t.plane.mutate(t.Rand, t.Logf)
		} else {
			l.service, c.stale = map[string]string{"s0": "s1", "s1": "s0"}[l.service], true
			t.Logf("%s: EDS service %s", l.name, l.service)
		}
		t.pushUnderPicks(c)
		for range 1 + t.Rand.IntN(4) {
			to := c
			if t.Rand.IntN(4) == 0 {
				to = t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))]
			}
			t.pickDuringUpdate(to, limits)
		}
	}
}

// pushUnderPicks sends the configuration while another goroutine makes RPCs to a cluster.
func (t *trial) pushUnderPicks(c *planeCluster) {
	for _, l := range c.leaves {
		t.lossy[l.name] = true // the model does not know where these RPCs go
	}
	p, _ := t.grpc.seen()
	begun, stop, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			if res, err := p.Pick(balancer.PickInfo{FullMethodName: "/" + c.name + "/m", Ctx: context.Background()}); err == nil && res.Done != nil {
				res.Done(balancer.DoneInfo{BytesSent: true, BytesReceived: true})
			}
			if i == 0 {
				close(begun)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	<-begun
	t.push()
	close(stop)
	<-done
}

// pickDuringUpdate makes an RPC, which counts for the circuit breaker of exactly one EDS service of
// its cluster: that of the configuration that its pick used (A32).
func (t *trial) pickDuringUpdate(c *planeCluster, limits map[string]uint32) {
	before := t.breakers()
	r := t.newRPC(c.name, t.Rand.Uint64(), t.Rand.IntN(2) == 0)
	t.updating = true
	t.pick(r)
	t.updating = false
	if r.conn == nil {
		return
	}
	var counted []account
	for a, n := range t.breakers() {
		switch d := n - before[a]; {
		case d == 1 && a.cluster == r.account.cluster:
			counted = append(counted, a)
		case d != 0:
			t.Fatalf("%v went to %v, and changes the RPCs in flight of %v by %d (A32)", r, r.conn, a, d)
		}
	}
	if len(counted) != 1 {
		t.Fatalf("%v went to %v, and counts in %d circuit breakers, want 1 (A32)", r, r.conn, len(counted))
	}
	t.counts[r.account]--
	r.account = counted[0]
	t.counts[r.account]++
	if n, most := t.counts[r.account], limits[r.account.cluster]; n > int(max(most, t.leafOf(r.conn.number).max)) {
		t.Fatalf("%v is one of %d RPCs in flight of %v, max_requests is %d (A32)", r, n, r.account, most)
	}
	t.holding = append(t.holding, r)
}

// breakers returns the RPCs in flight by the circuit breakers of this history's clusters.
func (t *trial) breakers() map[account]int {
	m := map[account]int{}
	counters.Breakers(func(cluster, service string, b *counters.Breaker) {
		for _, c := range t.plane.clusters {
			for _, l := range c.leaves {
				if l.realName == cluster {
					m[account{l.name, service}] = int(b.InFlight())
				}
			}
		}
	})
	return m
}

// checkBreakers checks that each circuit breaker counts the RPCs in flight that it has admitted (A32).
func (t *trial) checkBreakers() {
	got := t.breakers()
	for a, n := range got {
		if n != t.counts[a] {
			t.Fatalf("the circuit breaker of %v counts %d RPCs in flight, want %d (A32)", a, n, t.counts[a])
		}
	}
	for a, n := range t.counts {
		if n != got[a] {
			t.Fatalf("the circuit breaker of %v counts %d RPCs in flight, want %d (A32)", a, got[a], n)
		}
	}
}
