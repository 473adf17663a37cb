// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// A bench is a server on an event clock, with the results of its jobs.
type bench struct {
	clock  simulation
	server *Server
	ended  map[string]time.Duration
	why    map[string]refusal
}

func newBench(workers, limit int) *bench {
	b := &bench{ended: map[string]time.Duration{}, why: map[string]refusal{}}
	b.server = newServer(&b.clock, 0, workers, limit, 1)
	return b
}

func (b *bench) submit(name string, need time.Duration) (giveUp func()) {
	return b.server.submit(need, func(r refusal) { b.ended[name], b.why[name] = b.clock.now(), r })
}

func (b *bench) at(at time.Duration, f func()) { b.clock.after(at-b.clock.now(), f) }

func (b *bench) want(t *testing.T, name string, at time.Duration, why refusal) {
	t.Helper()
	got, ok := b.ended[name]
	if !ok || b.why[name] != why || (got-at).Abs() > 10 { // nanoseconds
		t.Errorf("job %s ended at %v (%t), refusal %d; want %v, %d", name, got, ok, b.why[name], at, why)
	}
}

// TestQueue: workers take jobs in order, the queue has its limit, and jobs that
// were given up leave it.
func TestQueue(t *testing.T) {
	b := newBench(2, 2)
	b.submit("a", 10*ms)
	b.submit("b", 20*ms)
	giveUp := b.submit("c", 10*ms)
	b.submit("d", 10*ms)
	b.submit("e", 10*ms) // the queue is full
	b.at(5*ms, func() {
		giveUp()
		giveUp()
		b.submit("f", 10*ms)
		b.submit("g", 10*ms)
	})
	b.clock.run(time.Second)
	b.want(t, "a", 10*ms, served)
	b.want(t, "b", 20*ms, served)
	b.want(t, "d", 20*ms, served)
	b.want(t, "e", 0, refusedFull)
	b.want(t, "f", 30*ms, served)
	b.want(t, "g", 5*ms, refusedFull)
	if _, ok := b.ended["c"]; ok {
		t.Error("a job that was given up while it waited was done")
	}
	if n := b.server.inFlight(); n != 0 {
		t.Errorf("%d jobs are in flight at the end", n)
	}
	near(t, "the time of workers", b.server.busy.sum(0, time.Second), float64(50*ms), .001)
}

// TestSpeed checks that the rest of a running job takes longer on a server that becomes slower,
// and as long as the stall on one that stalls.
func TestSpeed(t *testing.T) {
	b := newBench(1, 0)
	b.submit("a", 10*ms)
	b.submit("b", 10*ms)
	b.at(5*ms, func() { b.server.setSpeed(.5) })  // a has 5 ms left
	b.at(25*ms, func() { b.server.setSpeed(0) })  // b has 5 ms left
	b.at(125*ms, func() { b.server.setSpeed(2) }) // and needs 2.5
	b.at(200*ms, func() { b.submit("c", 10*ms) }) // 5 ms
	b.at(202*ms, func() { b.server.setSpeed(1) }) // 6 ms left
	b.at(204*ms, func() { b.server.setSpeed(1) }) // no change
	b.clock.run(time.Second)
	b.want(t, "a", 15*ms, served)
	b.want(t, "b", 127500*time.Microsecond, served)
	b.want(t, "c", 208*ms, served)
}

// TestFailing checks that a server that fails fast rejects new jobs and finishes its current
// ones.
func TestFailing(t *testing.T) {
	b := newBench(1, 0)
	b.submit("a", 10*ms)
	b.server.setFailing(true)
	b.submit("b", 10*ms)
	b.at(20*ms, func() { b.server.setFailing(false); b.submit("c", 10*ms) })
	b.clock.run(time.Second)
	b.want(t, "a", 10*ms, served)
	b.want(t, "b", 0, refusedFailing)
	b.want(t, "c", 30*ms, served)
	if n := b.server.arrivals.sum(0, time.Second); n != 3 {
		t.Errorf("%v arrivals, want 3", n)
	}
}

// TestDown: a server that goes down loses its jobs.
func TestDown(t *testing.T) {
	b := newBench(1, 0)
	b.submit("a", 10*ms)
	b.submit("b", 10*ms)
	b.at(5*ms, func() { b.server.setDown(true); b.submit("c", 10*ms) })
	b.at(50*ms, func() { b.server.setDown(false); b.submit("d", 10*ms) })
	b.clock.run(time.Second)
	b.want(t, "a", 5*ms, refusedDown)
	b.want(t, "b", 5*ms, refusedDown)
	b.want(t, "c", 5*ms, refusedDown)
	b.want(t, "d", 60*ms, served)
	near(t, "the time of workers", b.server.busy.sum(0, time.Second), float64(15*ms), .001)
}

// TestCold: the first job after the cache is lost takes coldFactor times as long,
// and after coldJobs it is as before.
func TestCold(t *testing.T) {
	b := newBench(1, 0)
	b.server.chill()
	b.submit("first", 10*ms)
	b.clock.run(time.Second)
	b.want(t, "first", coldFactor*10*ms, served)
	for range coldJobs - 1 {
		b.submit("some", 0)
	}
	b.clock.run(2 * time.Second)
	b.submit("last", 10*ms)
	b.clock.run(3 * time.Second)
	b.want(t, "last", 2*time.Second+10*ms, served)
}

// TestOracleSees checks that the oracle knows queue, workers and speed, and avoids servers that
// reject jobs.
func TestOracleSees(t *testing.T) {
	b := newBench(2, 1)
	wait := func(want time.Duration) {
		t.Helper()
		if got := b.server.wait(10 * ms); math.Abs(got-float64(want)) > 1 {
			t.Errorf("the wait is %v, want %v", time.Duration(got), want)
		}
	}
	wait(10 * ms)
	b.submit("a", 10*ms)
	wait(10 * ms)
	b.submit("b", 10*ms)
	wait(15 * ms)
	b.server.setSpeed(.5)
	wait(30 * ms)
	b.submit("c", 10*ms)
	if !math.IsInf(b.server.wait(10*ms), 1) {
		t.Error("the queue is full, but the oracle would wait")
	}
	for name, f := range map[string]func(s *Server){
		"stalls": func(s *Server) { s.setSpeed(0) },
		"fails":  func(s *Server) { s.setFailing(true) },
		"down":   func(s *Server) { s.setDown(true) },
	} {
		if f(b.server); !math.IsInf(b.server.wait(10*ms), 1) {
			t.Errorf("the server %s, but the oracle would wait", name)
		}
		b.server.setSpeed(1)
	}
}

// TestReports checks a server's reported utilization and rates.
func TestReports(t *testing.T) {
	b := newBench(2, 0)
	for i := range 500 {
		b.at(time.Duration(i)*10*ms, func() { b.submit("", 12*ms) })
	}
	b.at(5*time.Second, func() {
		qps, eps, utilisation := b.server.load()
		near(t, "rate", qps, 100, .05)
		near(t, "utilisation", utilisation, .6, .05)
		if eps != 0 {
			t.Errorf("%v errors a second, without any", eps)
		}
		b.server.setFailing(true)
	})
	for i := range 500 {
		b.at(5*time.Second+time.Duration(i)*10*ms, func() { b.submit("", 12*ms) })
	}
	b.at(10*time.Second, func() {
		qps, eps, utilisation := b.server.load()
		near(t, "rate of errors", eps, qps, .05)
		if utilisation > .01 {
			t.Errorf("the utilisation of a server that refuses everything is %v", utilisation)
		}
	})
	b.clock.run(11 * time.Second)
}

// TestAntagonists: so many servers are slow at a time, for so long, and all are
// well in between.
func TestAntagonists(t *testing.T) {
	f := smaller("", .7, "")
	c := &simulation{}
	m := &machines{}
	for i := range f.Servers {
		m.servers = append(m.servers, newServer(c, i, 1, 0, 1))
	}
	for _, e := range antagonists(2, 5*time.Second)(&f, rand.New(rand.NewPCG(1, 3))) {
		c.after(e.At, func() { e.do(m) })
	}
	slow := map[int]bool{}
	for at := time.Duration(0); at < f.end()-2*time.Second; at += 100 * ms {
		c.run(at)
		n := 0
		for _, s := range m.servers {
			if s.speed != 1 {
				n++
				slow[s.Index] = true
			}
		}
		switch within := at % (6 * time.Second); {
		case n > 2:
			t.Fatalf("%d servers are slow at %v", n, at)
		case within > time.Second && within < 5*time.Second && n != 2:
			t.Fatalf("%d servers are slow at %v, want 2", n, at)
		}
	}
	if len(slow) < f.Servers/2 {
		t.Errorf("only %d servers were ever slow", len(slow))
	}
}

// TestFleets: all fleets can be played; names, of policies too, are unique.
func TestFleets(t *testing.T) {
	var names []string
	for _, f := range append(Fleets(), LoopbackFleet()) {
		if err := f.check(); err != nil {
			t.Error(err)
		}
		names = append(names, f.Name)
		if f.Script == nil {
			continue
		}
		events := f.events(1)
		for i, e := range events {
			if e.At < 0 || e.At > f.end()+6*time.Second {
				t.Errorf("%s: event %d is at %v", f.Name, i, e.At)
			}
		}
	}
	for _, p := range Policies() {
		names = append(names, p.String())
	}
	slices.Sort(names)
	if d := len(names) - len(slices.Compact(names)); d != 0 {
		t.Errorf("%d names are there twice", d)
	}
	for _, bad := range []Fleet{{}, {Clients: 1, Servers: 1, Workers: 1}, usual("", "").with(func(f *Fleet) { f.Load = 0 }), usual("", "").with(func(f *Fleet) { f.Warm = 1 })} {
		if bad.check() == nil {
			t.Errorf("there is nothing wrong with %+v", bad)
		}
	}
}
