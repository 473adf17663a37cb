// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
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
