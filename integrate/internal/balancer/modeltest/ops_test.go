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

// This file has the events of a history.

// An op is an event. It is drawn from t.Rand, so that a step is the same whatever steps precede it.
type op struct {
	odds int
	do   func(t *history)
}

var ops = []op{
	{30, (*history).update},
	{14, (*history).wait},
	{40, (*history).connections},
	{5, (*history).outage},
	{8, (*history).recovery},
	{5, (*history).changeHealth},
	{14, (*history).traffic},
	{3, (*history).retryBursts},
	{6, (*history).startIntercepted},
	{8, (*history).startRouted},
	{5, (*history).endSomeAttempts},
	{6, (*history).endSome},
	{2, (*history).exitIdle},
	{1, (*history).idleAndBack},
	{1, (*history).failTarget},
}

// step runs one step of the history.
func (t *history) step() {
	t.runEvent(ops)
	t.runCombined()
	t.runPushbacks()
	if t.backends.endsStreams() {
		kit.Pass(lb.LossDelay) // the end of a stream is not reported before
	}
	t.checkAll()
}

// runEvent draws an event and runs it.
func (t *history) runEvent(ops []op) {
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

// update changes the configuration, once or several times.
func (t *history) update() {
	t.Logf("update:")
	for range 1 + t.Rand.IntN(3) {
		t.controlPlane.mutate(t.Rand, t.Logf)
	}
	t.push()
}

// wait lets time pass: about a second, a failover, a deactivation.
func (t *history) wait() {
	o := defaulted(t.options)
	longest := []time.Duration{time.Second, 5 * time.Second, o.FailoverTimeout * 5 / 4, o.RetireAfter * 5 / 4}
	d := time.Duration(t.Rand.Int64N(int64(longest[t.Rand.IntN(len(longest))])))
	t.Logf("wait %v", d)
	kit.Pass(d)
}

// connections moves a few SubConns to their next state.
func (t *history) connections() {
	for range 1 + t.Rand.IntN(4) {
		if open := t.grpc.Open(); len(open) > 0 {
			c := open[t.Rand.IntN(len(open))]
			was := c.State
			if c.Step(t.Rand.IntN(4) > 0) {
				t.Logf("%v, was %v", c, was)
				t.pickUnsettled()
			}
		}
	}
}

// outage loses all connections, and has all connection attempts fail.
func (t *history) outage() {
	t.Logf("outage")
	for _, c := range t.grpc.Open() {
		if c.State == connectivity.Ready || c.State == connectivity.Connecting {
			c.Step(false)
			t.pickUnsettled()
		}
	}
}

// recovery has nearly all connection attempts succeed.
func (t *history) recovery() {
	t.Logf("recovery")
	for range 3 {
		for _, c := range t.grpc.Open() {
			if c.State != connectivity.Ready && t.Rand.IntN(10) > 0 {
				c.Step(true)
				t.pickUnsettled()
			}
		}
	}
}

// pickUnsettled makes an RPC at once, while the balancer has work to do. The RPC may pick a
// connection that was just lost, or wait, but must be woken like any other.
func (t *history) pickUnsettled() {
	if t.Rand.IntN(2) > 0 || len(t.waiting) > 10 {
		return
	}
	c := t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
	r := t.newRPC(c.name, t.Rand.Uint64(), true)
	switch t.pick(r); {
	case r.waiting:
		t.waiting = append(t.waiting, r)
	case r.conn != nil:
		t.holding = append(t.holding, r)
	}
	if t.Rand.IntN(8) == 0 {
		t.queryUnsettled()
	}
}

// traffic makes RPCs to one cluster. RPCs to one endpoint fail more often. Some stay in flight.
func (t *history) traffic() {
	c := t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
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
func (t *history) attempt(r *modelRPC, bad int) (mayRetry bool) {
	if t.pick(r); r.conn == nil || !t.tryUse(r) {
		return false
	}
	switch {
	case t.Rand.IntN(8) == 0:
		t.inFlight = append(t.inFlight, r)
	case r.attemptCtx != nil && t.Rand.IntN(4) == 0:
		t.supersede(r)
	case r.conn.Data.number%10 == bad || t.Rand.IntN(8) == 0:
		t.end(r, errors.New("failed"))
		return r.mayRetry()
	default:
		t.end(r, nil)
	}
	return false
}

// endSome ends some of the RPCs that are in flight.
func (t *history) endSome() {
	var left []*modelRPC
	for _, r := range t.inFlight {
		switch t.Rand.IntN(4) {
		case 0:
			left = append(left, r)
		case 1:
			t.end(r, errors.New("failed"))
		case 2:
			if r.attemptCtx != nil {
				t.supersede(r)
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

func (t *history) exitIdle() {
	t.Logf("ExitIdle")
	t.lb.ExitIdle()
}

// idleAndBack has the channel enter idle mode, once it has no RPCs, and leave it: gRPC closes the
// balancer and builds a new one.
func (t *history) idleAndBack() {
	t.Logf("idle and back")
	t.cancelIntercepted()
	t.waiting = nil
	for _, r := range slices.Concat(t.inFlight, t.holding) {
		t.end(r, nil)
	}
	t.inFlight, t.holding = nil, nil
	old := t.grpc
	t.stop()
	t.drainEvents()
	t.checkShutDown(old)
	t.changeEnvironment()
	t.start()
}

// failTarget has the target fail, and return with the next update.
func (t *history) failTarget() {
	t.Logf("the target fails")
	t.lb.ResolverError(errors.New("no such target"))
	t.drainEvents()
	t.markIncomplete()
	if t.Rand.IntN(2) == 0 {
		t.probeAll()
	}
	for _, c := range t.controlPlane.clusters {
		c.sent = nil
	}
	t.push()
}

// Some events combine several features.

// combinedEvents follow some steps. They draw from a separate source, so that they do not change
// the draws of other events.
var combinedEvents = []op{
	{4, (*history).resetConnections},
	{4, (*history).updateWithoutPause},
	{3, (*history).interleaveSessions},
	{3, (*history).failUnsent},
	{3, (*history).failAfterReturn},
	{2, (*history).panicInRetries},
	{1, (*history).panicInAttempt},
}

// runCombined runs one of combinedEvents, or does nothing.
func (t *history) runCombined() {
	own := t.Rand
	t.Rand = rand.New(rand.NewPCG(t.Step, 1))
	if t.Rand.IntN(3) == 0 {
		t.drainEvents()
		t.runEvent(combinedEvents)
	}
	t.Rand = own
}

// resetConnections resets the connections to the priority in use of a cluster. As with real peers,
// the streams of health checks end before gRPC reports that the connections are lost. Until the
// connections have failed to reconnect, the priority is CONNECTING: RPCs wait; they do not fail
// (A17: a health check is part of the connection that it is made on) and use no other priority
// (A56).
func (t *history) resetConnections() {
	c := t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
	if !c.routed || !t.mustServe(c) || t.hashes(c) {
		return
	}
	at := t.firstReady(c)
	var conns []*modelConn
	for _, conn := range t.grpc.Open() {
		if conn.TakesRPCs() && c.priorities()[at].find(conn.Data.number) != nil {
			conns = append(conns, conn)
		}
	}
	t.Logf("the connections to priority %d of %s are reset: %v", at, c.name, conns)
	for _, conn := range conns {
		t.backends.end(conn)
	}
	synctest.Wait()
	t.checkReconnecting(c, at)
	if t.Rand.IntN(2) == 0 {
		kit.Pass(lb.LossDelay / 2)
		t.checkReconnecting(c, at)
	}
	for _, conn := range conns {
		conn.Step(false)
	}
	t.checkReconnecting(c, at)
	t.drainEvents()
	t.checkReconnecting(c, at)
}

// firstReady returns the index of the first priority that must be READY.
func (t *history) firstReady(c *modelCluster) int {
	for i, p := range c.priorities() {
		if t.isReady(p) {
			return i
		}
	}
	return -1
}

// checkReconnecting makes an RPC to a cluster that has just lost the connections of a priority.
func (t *history) checkReconnecting(c *modelCluster, priority int) {
	r := t.newRPC(c.name, t.Rand.Uint64(), false)
	switch t.pick(r); {
	case r.waiting:
		t.waiting = append(t.waiting, r)
	case r.conn != nil:
		t.holding = append(t.holding, r)
		if at, _ := c.find(r.conn.Data.number); at > priority {
			t.Fatalf("%v picked %v of priority %d, want it to wait while priority %d is CONNECTING (A56)", r, r.conn, at, priority)
		}
	case !t.refused(r):
		t.Fatalf("%v failed, want it to wait while priority %d is CONNECTING (A17): %v", r, priority, r.err)
	}
}

// updateWithoutPause sends several updates at once, most of which change the EDS service name of
// one cluster, while RPCs pick. Picks use the first of the configurations until the later ones are
// published, and custom policies receive none until then.
func (t *history) updateWithoutPause() {
	t.Logf("updates without a pause:")
	c := t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
	l := c.leaves[t.Rand.IntN(len(c.leaves))]
	if c.routed && t.Rand.IntN(3) == 0 {
		t.Logf("%s: a custom policy, whose endpoints connect", l.name)
		l.policy, c.stale = picker.Policy{Kind: picker.PolicyCustom, Flat: true, Custom: &picker.CustomPolicy{Name: string(immediate), Config: json.RawMessage(`{}`)}}, true
		t.push()
		t.connectAll()
	}
	limits := map[string]uint32{} // the highest max_requests that may be in force
	defer holdPolicies()()
	t.push()
	for range 1 + t.Rand.IntN(3) {
		for _, c := range t.controlPlane.clusters {
			for _, l := range c.leaves {
				limits[l.name] = max(limits[l.name], l.max)
			}
		}
		if t.Rand.IntN(4) == 0 {
			t.controlPlane.mutate(t.Rand, t.Logf)
		} else {
			l.service, c.stale = map[string]string{"s0": "s1", "s1": "s0"}[l.service], true
			t.Logf("%s: EDS service %s", l.name, l.service)
		}
		t.pushUnderPicks(c)
		for range 1 + t.Rand.IntN(4) {
			to := c
			if t.Rand.IntN(4) == 0 {
				to = t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
			}
			t.pickDuringUpdate(to, limits)
		}
	}
}

// pushUnderPicks sends the configuration while another goroutine makes RPCs to a cluster.
func (t *history) pushUnderPicks(c *modelCluster) {
	for _, l := range c.leaves {
		t.incomplete[l.name] = true // the model does not know the endpoints of these RPCs
	}
	p, _ := t.grpc.Seen()
	started, stop, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			if res, err := p.Pick(balancer.PickInfo{FullMethodName: "/" + c.name + "/m", Ctx: context.Background()}); err == nil && res.Done != nil {
				res.Done(balancer.DoneInfo{BytesSent: true, BytesReceived: true})
			}
			if i == 0 {
				close(started)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	<-started
	t.push()
	close(stop)
	<-done
}

// pickDuringUpdate makes an RPC, which counts for the circuit breaker of exactly one EDS service of
// its cluster: that of the configuration that its pick used (A32).
func (t *history) pickDuringUpdate(c *modelCluster, limits map[string]uint32) {
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
			t.Fatalf("%v picked %v and changes the RPCs in flight of %v by %d, want 0 (A32)", r, r.conn, a, d)
		}
	}
	if len(counted) != 1 {
		t.Fatalf("%v picked %v and counts in %d circuit breakers, want 1 (A32)", r, r.conn, len(counted))
	}
	t.counts[r.account]--
	r.account = counted[0]
	t.counts[r.account]++
	if n, most := t.counts[r.account], limits[r.account.cluster]; n > int(max(most, t.leafOf(r.conn.Data.number).max)) {
		t.Fatalf("%v is one of %d RPCs in flight of %v, want at most max_requests, which is %d (A32)", r, n, r.account, most)
	}
	t.holding = append(t.holding, r)
}

// breakers returns the RPCs in flight by the circuit breakers of this history's clusters.
func (t *history) breakers() map[account]int {
	m := map[account]int{}
	counters.Breakers(func(cluster, service string, b *counters.Breaker) {
		for _, c := range t.controlPlane.clusters {
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
func (t *history) checkBreakers() {
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
