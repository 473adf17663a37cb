// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/picker"
)

// byLoad returns c with load-aware localities and Envoy's defaults, seen from zone 0.
func byLoad(c *picker.Cluster) *picker.Cluster {
	l := &c.Leaves[0]
	l.Policy.LoadAware = &picker.LoadAware{
		UpdatePeriod: time.Second, Smoothing: 5 * time.Second, Expiration: 3 * time.Minute, Threshold: .1, Probe: .03,
	}
	l.Origin = &picker.Origin{Locality: picker.LocalityID{Zone: "0"}}
	return c
}

// report has an RPC to endpoint n end with a report of a utilization.
func (b *testLB) report(t *testing.T, n int, utilization float64) {
	t.Helper()
	for _, l := range b.live() {
		for e := range l.endpoints {
			if e.conn == nil || e.conn.subConn().(*fakeConn).addr != addr(n).String() {
				continue
			}
			if o := e.observers.Load(); o != nil {
				o.onDone(&balancer.DoneInfo{ServerLoad: &orcav3.OrcaLoadReport{ApplicationUtilization: utilization}}, picker.CallOK)
			}
			return
		}
	}
	t.Fatalf("there is no endpoint %d", n)
}

// routing returns how the first cluster chooses a locality, as published; nil if not by a rule.
func (b *testLB) routing() *picker.LocalityRouting {
	return b.picker.current.Load().Snapshot.LocalityRouting(0)
}

// wantZones checks the shares of localities as published.
func (b *testLB) wantZones(t *testing.T, want ...float64) {
	t.Helper()
	r := b.routing()
	if r == nil || len(r.Localities) != len(want) {
		t.Fatalf("localities %+v, want %v", r, want)
	}
	for i, l := range r.Localities {
		if math.Abs(l.Share-want[i]) > 1e-4 {
			t.Errorf("localities get %+v, want %v", r.Localities, want)
			return
		}
	}
}

// TestLoadAwareZones: a hot zone sheds RPCs as in Envoy's worked example, at the first
// update after reports, and follows them smoothly from then on.
func TestLoadAwareZones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(byLoad(clusterOf("c", prio(eps(1, 2), eps(3, 4), eps(5, 6))))))
		for n := 1; n <= 6; n++ {
			cc.conn(t, n).to(ready)
		}
		b.flush()
		b.wantZones(t, .97, .015, .015)
		hot := func() {
			b.report(t, 1, .8) // the mean counts
			b.report(t, 2, .6)
			b.report(t, 3, .3) // the other one has not reported yet
			b.report(t, 5, .4)
			b.report(t, 6, .4)
		}
		hot()
		b.wantZones(t, .97, .015, .015) // until the next update
		pass(1100 * time.Millisecond)
		b.wantZones(t, 3./16, 7./16, 6./16)

		// One time constant after zone 0 has become idle, it is at 0.7/e: what is left of
		// it grows until it is not busier than the others any more.
		b.report(t, 1, 1e-9)
		b.report(t, 2, 1e-9)
		pass(time.Second)
		left := 1 - .7*math.Exp(-.2)
		b.wantZones(t, left/(left+1.3), .7/(left+1.3), .6/(left+1.3))
		pass(time.Second)
		left = 1 - .7*math.Exp(-.4)
		b.wantZones(t, left/(left+1.3), .7/(left+1.3), .6/(left+1.3))
		pass(time.Second) // 0.384, which is less than 0.35 and the threshold
		b.wantZones(t, .97, .015, .015)
	})
}

// TestLoadAwareExpires: endpoints that are silent do not count, and a locality of which all
// are weighs its endpoints.
func TestLoadAwareExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(byLoad(clusterOf("c", prio(eps(1, 2), eps(3, 4))))))
		for n := 1; n <= 4; n++ {
			cc.conn(t, n).to(ready)
		}
		b.flush()
		b.report(t, 1, .9)
		b.report(t, 2, .5)
		b.report(t, 3, .3)
		pass(1100 * time.Millisecond)
		b.wantZones(t, .3, .7)
		pass(2 * time.Minute)
		b.report(t, 2, .5)
		b.report(t, 3, .3)
		pass(2 * time.Minute) // endpoint 1 is silent: .5, and not .7, after a while
		b.wantZones(t, .5/1.2, .7/1.2)
		pass(2 * time.Minute) // all are, and 0 was the busier one
		b.wantZones(t, .5, .5)
		b.report(t, 2, .5)
		pass(time.Second)
		b.wantZones(t, .5/1.5, 1/1.5)
	})
}

// TestLoadAwareComesAndGoes: the timer and the observers are there while the policy is, and
// utilizations move with their endpoints.
func TestLoadAwareComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		running := func(want bool) {
			t.Helper()
			b.flush()
			b.lock()
			defer b.unlock()
			if got := b.clusters["c"].loadTimer != nil; got != want {
				t.Errorf("the timer runs: %v, want %v", got, want)
			}
		}
		b.Update(configOf(byLoad(clusterOf("c", prio(eps(1), eps(2))))))
		running(false)
		cc.conn(t, 1).to(ready)
		cc.conn(t, 2).to(ready)
		running(true)
		b.report(t, 1, .7)
		b.report(t, 2, .3)
		pass(1100 * time.Millisecond)
		b.wantZones(t, .3, .7)

		// An update keeps what is known, also when endpoints change places.
		b.Update(configOf(byLoad(clusterOf("c", prio(eps(1, 3), eps(2))))))
		b.flush()
		b.wantZones(t, .3, .7) // 3 connects
		b.Update(configOf(byLoad(clusterOf("c", prio(eps(2), eps(1))))))
		b.flush()
		pass(time.Minute) // many time constants
		b.wantZones(t, .97, .03)
		b.Update(configOf(byLoad(clusterOf("c", prio(eps(1), eps(2))))))
		b.flush()
		pass(time.Minute)
		b.wantZones(t, .3/(.3+.7), .7)

		// A priority that serves alone has one to choose from.
		b.Update(configOf(byLoad(clusterOf("c", prio(eps(1, 2))))))
		running(false)

		b.Update(configOf(clusterOf("c", prio(eps(1), eps(2)))))
		running(false)
		for e := range b.clusters["c"].leaves[0].endpoints {
			if e.observers.Load() != nil {
				t.Error("endpoints go on listening to reports under another policy")
			}
		}
		if r := b.routing(); r != nil {
			t.Errorf("localities %+v under another policy", r)
		}
		b.Update(configOf(byLoad(clusterOf("c", prio(eps(1), eps(2))))))
		running(true)
		b.wantZones(t, .97, .03) // nothing is known any more
	})
}

// TestLoadAwareOutOfBand: both who weighs endpoints and who weighs localities may listen.
func TestLoadAwareOutOfBand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		update := func(wrr, load time.Duration) {
			c := byLoad(weighed(clusterOf("c", prio(eps(1), eps(2)))))
			p := &c.Leaves[0].Policy
			p.Flat = false
			p.WRR.OutOfBand, p.WRR.OOBPeriod = wrr > 0, wrr
			p.LoadAware.OutOfBand, p.LoadAware.OOBPeriod = load > 0, load
			b.Update(configOf(c))
			b.flush()
		}
		open := func(want int) {
			t.Helper()
			synctest.Wait()
			cc.mu.Lock()
			defer cc.mu.Unlock()
			if cc.streams != want {
				t.Errorf("%d streams are open, want %d", cc.streams, want)
			}
		}
		update(0, time.Second)
		cc.conn(t, 1).to(ready)
		cc.conn(t, 2).to(ready)
		b.flush()
		open(2)
		b.report(t, 1, .9) // at the end of an RPC, which is not what was asked for
		pass(1100 * time.Millisecond)
		b.wantZones(t, .97, .03)
		for e := range b.clusters["c"].leaves[0].endpoints {
			e.observers.Load().util.OnLoadReport(&orcav3.OrcaLoadReport{CpuUtilization: .9 - .6*float64(e.loc.id.Zone[0]-'0')})
		}
		pass(time.Second)
		b.wantZones(t, .1/.8, .7/.8)
		update(time.Second, time.Second)
		open(4) // a real connection has one stream for both
		update(time.Second, 0)
		open(2)
		update(0, 0)
		open(0)
		update(0, 2*time.Second)
		open(2)
		cc.conn(t, 1).to(idle)
		b.flush()
		open(1)
		b.Update(configOf(clusterOf("c", prio(eps(1), eps(2)))))
		b.flush()
		open(0)
	})
}

// TestLoadAwareRecovers: a locality whose endpoints reported absurd utilizations once counts
// as busy as its later reports within a few time constants.
func TestLoadAwareRecovers(t *testing.T) {
	for _, absurd := range []float64{1e300, math.MaxFloat64} {
		synctest.Test(t, func(t *testing.T) {
			b, cc := newTestLB(t, Config{})
			b.Update(configOf(byLoad(clusterOf("c", prio(eps(1), eps(2, 3))))))
			for n := 1; n <= 3; n++ {
				cc.conn(t, n).to(ready)
			}
			b.flush()
			report := func(utilization float64) {
				b.report(t, 1, .3)
				b.report(t, 2, utilization)
				b.report(t, 3, utilization)
				pass(1100 * time.Millisecond)
			}
			report(absurd)
			for range 30 { // six time constants
				report(.95)
			}
			r := b.routing()
			if got := r.Localities[1].Utilization; !(math.Abs(got-.95) < .05) {
				t.Errorf("30 s after a report of %v the utilization is %v, want 0.95", absurd, got)
			}
		})
	}
}
