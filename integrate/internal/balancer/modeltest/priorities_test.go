// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/picker"
)

// a56Oracle is an oracle of gRFC A56's priority policy, written from its text. Its children are
// priorities of two endpoints each.
type a56Oracle struct {
	priorities []*a56Child
	current    int
}

// a56Child is a child of the priority policy.
type a56Child struct {
	created     bool
	state       connectivity.State
	sinceUsable bool      // it was READY after its last TRANSIENT_FAILURE
	failover    time.Time // when its failover timer fires, or zero
	deactivated time.Time // zero while it is active
}

// start creates the child, or activates it again.
func (c *a56Child) start(now time.Time) {
	if !c.created {
		*c = a56Child{created: true, state: connectivity.Connecting, failover: now.Add(a56Failover)}
	}
	if !c.deactivated.IsZero() {
		c.deactivated = time.Time{}
		c.update(c.state, now)
	}
}

// update handles a state that the child reports.
func (c *a56Child) update(s connectivity.State, now time.Time) {
	c.state = s
	switch s {
	case connectivity.Ready:
		c.sinceUsable, c.failover = true, time.Time{}
	case connectivity.TransientFailure:
		c.sinceUsable, c.failover = false, time.Time{}
	default:
		if c.sinceUsable && c.failover.IsZero() && c.deactivated.IsZero() {
			c.sinceUsable, c.failover = false, now.Add(a56Failover)
		}
	}
}

const (
	a56Failover = 10 * time.Second
	a56Retire   = 15 * time.Minute
)

// choose implements A56's ChoosePriority.
func (o *a56Oracle) choose(now time.Time) {
	for i, c := range o.priorities {
		c.start(now)
		if c.state == connectivity.Ready {
			o.current = i
			for _, lower := range o.priorities[i+1:] {
				if lower.created && lower.deactivated.IsZero() {
					lower.deactivated, lower.failover = now, time.Time{}
				}
			}
			return
		}
		if c.failover.After(now) {
			o.current = i
			return
		}
		c.failover = time.Time{}
	}
	o.current = slices.IndexFunc(o.priorities, func(c *a56Child) bool { return c.state == connectivity.Connecting })
	if o.current < 0 {
		o.current = len(o.priorities) - 1
	}
}

// next returns the time of the next timer, or until if that is earlier.
func (o *a56Oracle) next(until time.Time) time.Time {
	for _, c := range o.priorities {
		if c.failover.After(time.Now()) && c.failover.Before(until) {
			until = c.failover
		}
		if end := c.deactivated.Add(a56Retire); !c.deactivated.IsZero() && end.Before(until) {
			until = end
		}
	}
	return until
}

// expire removes the children whose deactivation timer has fired.
func (o *a56Oracle) expire(now time.Time) {
	for _, c := range o.priorities {
		if !c.deactivated.IsZero() && !now.Before(c.deactivated.Add(a56Retire)) {
			*c = a56Child{}
		}
	}
}

// a56State is the state of an endpoint in its priority: TRANSIENT_FAILURE lasts until it is READY
// (A62).
func a56State(before connectivity.State, conn *modelConn) connectivity.State {
	switch {
	case conn.State == connectivity.Ready || conn.State == connectivity.TransientFailure:
		return conn.State
	case before == connectivity.TransientFailure:
		return before
	default:
		return connectivity.Connecting
	}
}

// TestA56 changes the states of three priorities and the time at random, and compares every pick
// with the oracle: the priority in use, the time at which the next is tried, and the priorities
// that stay connected (T-PRIO-1, T-PRIO-2, T-PRIO-3, T-PRIO-4).
func TestA56(t *testing.T) {
	runs := 200
	if testing.Short() {
		runs = 40
	}
	m := kit.Model{Steps: 150, Run: runA56}
	m.Test(t, runs)
}

func runA56(t *kit.Trial) {
	cc := newModelChannel(t)
	b, source := newModelBalancer(cc, integrate.Config{}, nil, new(loadServers).intercept)
	defer source.Close()
	defer b.Close()
	o := &a56Oracle{priorities: []*a56Child{{}, {}, {}}}
	b.Update(configOf(picker.Leaf{Priorities: []picker.Priority{
		zone("0", member(0), member(1)), zone("1", member(10), member(11)), zone("2", member(20), member(21)),
	}}))
	synctest.Wait()
	states := map[*modelConn]connectivity.State{}
	o.choose(time.Now())
	for range t.Steps() {
		if conns := cc.Open(); t.Rand.IntN(6) > 0 {
			conns[t.Rand.IntN(len(conns))].Step(t.Rand.IntN(3) > 0)
		} else {
			until := time.Now().Add([]time.Duration{time.Second, 4 * time.Second, 9 * time.Second, 6 * time.Minute}[t.Rand.IntN(4)])
			for now := time.Now(); now.Before(until); now = time.Now() {
				kit.Pass(o.next(until).Sub(now))
				o.expire(time.Now())
				o.observe(cc, states)
			}
		}
		o.observe(cc, states)
		kit.Pass(2 * time.Millisecond) // the minimum interval of publications
		o.observe(cc, states)
		o.check(t, cc)
	}
}

// observe reports the states of the SubConns to the oracle.
func (o *a56Oracle) observe(cc *modelChannel, states map[*modelConn]connectivity.State) {
	for i, c := range o.priorities {
		var ready, connecting, found bool
		for _, conn := range cc.Open() {
			if conn.Data.number/10 == i {
				states[conn] = a56State(states[conn], conn)
				found = true
				ready = ready || states[conn] == connectivity.Ready
				connecting = connecting || states[conn] == connectivity.Connecting
			}
		}
		state := connectivity.TransientFailure
		if ready {
			state = connectivity.Ready
		} else if connecting || !found {
			state = connectivity.Connecting
		}
		if c.created && state != c.state {
			c.update(state, time.Now())
		}
	}
	o.choose(time.Now())
}

// check compares a pick and the SubConns with the oracle.
func (o *a56Oracle) check(t testing.TB, cc *modelChannel) {
	p, _ := cc.Seen()
	res, err := p.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: t.Context()})
	got := -1
	if err == nil {
		got = numberAt(res.SubConn.(*modelConn).Addr) / 10
		res.Done(balancer.DoneInfo{BytesReceived: true})
	}
	waits := errors.Is(err, balancer.ErrNoSubConnAvailable)
	switch state := o.priorities[o.current].state; {
	case state == connectivity.Ready && got != o.current:
		t.Errorf("pick used priority %d (error %v), want %d, which A56 chooses", got, err, o.current)
	case state == connectivity.Connecting && got >= 0 && (got <= o.current || o.priorities[got].state != connectivity.Ready):
		t.Errorf("pick used priority %d, want %d, which A56 chooses and is CONNECTING, or a lower one that is READY", got, o.current)
	case state == connectivity.Connecting && got < 0 && !waits, state == connectivity.TransientFailure && (got >= 0 || waits):
		t.Errorf("pick used priority %d (error %v), want %d, which A56 chooses and is in %v", got, err, o.current, state)
	}
	for i, c := range o.priorities {
		connected := slices.ContainsFunc(cc.Open(), func(conn *modelConn) bool { return conn.Data.number/10 == i })
		if connected != c.created {
			t.Errorf("priority %d is connected: %v, want %v (A56)", i, connected, c.created)
		}
	}
}
