// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/picker"
)

// This file is what can happen in a trial.

// An op is something that can happen. It is drawn from t.Rand, so that the same
// step is the same whatever steps were before.
type op struct {
	odds int
	do   func(t *trial)
}

var ops = []op{
	{30, (*trial).update},
	{14, (*trial).wait},
	{40, (*trial).connections},
	{5, (*trial).outage},
	{8, (*trial).recovery},
	{5, (*trial).sicken},
	{14, (*trial).traffic},
	{3, (*trial).volleys},
	{6, (*trial).takeOff},
	{8, (*trial).depart},
	{5, (*trial).landSome},
	{6, (*trial).endSome},
	{2, (*trial).exitIdle},
	{1, (*trial).idleAndBack},
	{1, (*trial).refuse},
}

// step takes the trial a step further.
func (t *trial) step() {
	t.happen(ops)
	t.combine()
	if t.grpc.backends.endsStreams() {
		kit.Pass(lb.LossDelay) // the end of a stream is not reported before
	}
	t.audit()
}

// happen draws an event.
func (t *trial) happen(ops []op) {
	odds := 0
	for _, o := range ops {
		odds += o.odds
	}
	k := t.Rand.IntN(odds)
	for _, o := range ops {
		if k -= o.odds; k < 0 {
			o.do(t)
			break
		}
	}
}

// update is a change of the configuration, or several at once.
func (t *trial) update() {
	t.Logf("update:")
	for range 1 + t.Rand.IntN(3) {
		t.plane.mutate(t.Rand, t.Logf)
	}
	t.push()
}

// wait lets time pass: a second or so, a failover, a retirement.
func (t *trial) wait() {
	o := defaulted(t.options)
	longest := []time.Duration{time.Second, 5 * time.Second, o.FailoverTimeout * 5 / 4, o.RetireAfter * 5 / 4}
	d := time.Duration(t.Rand.Int64N(int64(longest[t.Rand.IntN(len(longest))])))
	t.Logf("wait %v", d)
	kit.Pass(d)
}

// connections takes a few SubConns a step further.
func (t *trial) connections() {
	for range 1 + t.Rand.IntN(4) {
		if open := t.grpc.open(); len(open) > 0 {
			c := open[t.Rand.IntN(len(open))]
			was := c.state
			if c.step(t.Rand.IntN(4) > 0) {
				t.Logf("%v, was %v", c, was)
				t.glance()
			}
		}
	}
}

// outage loses all connections, or lets all attempts fail.
func (t *trial) outage() {
	t.Logf("outage")
	for _, c := range t.grpc.open() {
		if c.state == connectivity.Ready || c.state == connectivity.Connecting {
			c.step(false)
			t.glance()
		}
	}
}

// recovery lets nearly all connections come up that are asked for.
func (t *trial) recovery() {
	t.Logf("recovery")
	for range 3 {
		for _, c := range t.grpc.open() {
			if c.state != connectivity.Ready && t.Rand.IntN(10) > 0 {
				c.step(true)
				t.glance()
			}
		}
	}
}

// glance makes an RPC at once, while the balancer has not settled: it may go to a
// connection that has just gone, or wait, but must be woken like any other.
func (t *trial) glance() {
	if t.Rand.IntN(2) > 0 || len(t.sleepers) > 10 {
		return
	}
	c := t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))]
	r := t.newRPC(c.name, t.Rand.Uint64(), true)
	switch t.pick(r); {
	case r.waiting:
		t.sleepers = append(t.sleepers, r)
	case r.conn != nil:
		t.holding = append(t.holding, r)
	}
	if t.Rand.IntN(8) == 0 {
		t.glimpse()
	}
}

// traffic makes RPCs to one cluster, of which those to one endpoint fail more
// often. Some stay in flight.
func (t *trial) traffic() {
	c := t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))]
	bad := t.Rand.IntN(endpointsPerLeaf)
	n := 1 + t.Rand.IntN(20)
	t.Logf("%d RPCs to %s, endpoint %d is bad", n, c.name, bad)
	for range n {
		r := t.newRPC(c.name, t.Rand.Uint64(), false)
		for more := true; more; {
			more = t.attempt(r, bad)
		}
	}
}

// attempt makes an attempt at an RPC, and reports whether there is to be another one. Some
// stay in flight.
func (t *trial) attempt(r *modelRPC, bad int) (again bool) {
	if t.pick(r); r.conn == nil || !t.used(r) {
		return false
	}
	switch {
	case t.Rand.IntN(8) == 0:
		t.inFlight = append(t.inFlight, r)
	case r.attempts != nil && t.Rand.IntN(4) == 0:
		t.loses(r)
	case r.conn.number%10 == bad || t.Rand.IntN(8) == 0:
		t.end(r, errors.New("failed"))
		return r.again()
	default:
		t.end(r, nil)
	}
	return false
}

// endSome ends some of the RPCs that are in flight.
func (t *trial) endSome() {
	var left []*modelRPC
	for _, r := range t.inFlight {
		switch t.Rand.IntN(4) {
		case 0:
			left = append(left, r)
		case 1:
			t.end(r, errors.New("failed"))
		case 2:
			if r.attempts != nil {
				t.loses(r)
				continue
			}
			t.end(r, nil)
		default:
			t.end(r, nil)
		}
	}
	t.Logf("%d RPCs end", len(t.inFlight)-len(left))
	t.inFlight = left
}

func (t *trial) exitIdle() {
	t.Logf("ExitIdle")
	t.lb.ExitIdle()
}

// idleAndBack has the channel go idle, once it has no RPCs, and come back: gRPC
// closes the balancer and builds another.
func (t *trial) idleAndBack() {
	t.Logf("idle and back")
	t.landAll()
	t.sleepers = nil
	for _, r := range slices.Concat(t.inFlight, t.holding) {
		t.end(r, nil)
	}
	t.inFlight, t.holding = nil, nil
	old := t.grpc
	t.stop()
	t.rest()
	t.mustBeShut(old)
	t.handOver()
	t.start()
}

// refuse has the target fail, and come back with the next update.
func (t *trial) refuse() {
	t.Logf("the target fails")
	t.lb.ResolverError(errors.New("no such target"))
	t.rest()
	t.loseReports()
	if t.Rand.IntN(2) == 0 {
		t.probeAll()
	}
	for _, c := range t.plane.clusters {
		c.sent = nil
	}
	t.push()
}

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
