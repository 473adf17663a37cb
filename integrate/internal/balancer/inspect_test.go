// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
)

// inspected is the result of Inspect for the balancer.
func (b *testLB) inspected() *report.TargetStatus {
	var s report.TargetStatus
	Status(b.Balancer, &s, true)
	return &s
}

// endpointNamed returns the status of the endpoint with an address.
func endpointNamed(t testing.TB, s *report.TargetStatus, address string) *report.EndpointStatus {
	t.Helper()
	for _, c := range s.Clusters {
		for _, l := range c.Leaves {
			for _, p := range l.Priorities {
				for _, loc := range p.Localities {
					for i := range loc.Endpoints {
						if loc.Endpoints[i].Address == address {
							return &loc.Endpoints[i]
						}
					}
				}
			}
		}
	}
	t.Fatalf("no endpoint %s in %+v", address, s)
	return nil
}

// TestInspect: the status of the endpoints of each priority agrees with the picks, and the picks
// are counted.
func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		first, second := prio(eps(1, 2, 3, 4)), prio(eps(5))
		edit(&first, 1, func(e *picker.Endpoint) { e.Weight = 3 })
		edit(&first, 3, func(e *picker.Endpoint) { e.Health = picker.Draining })
		b.take(configOf(clusterOf("c", first, second)))
		for n := 1; n <= 2; n++ {
			cc.conn(t, n).to(ready)
		}
		cc.conn(t, 3).to(failure)
		b.flush()

		s := b.inspected()
		want := []struct {
			share float64
			state string
			out   string
		}{{.25, "READY", ""}, {.75, "READY", ""}, {0, "TRANSIENT_FAILURE", "TRANSIENT_FAILURE for 0s"}, {0, "IDLE", "draining"}, {0, "IDLE", "its priority is not in use"}}
		for i, w := range want {
			e := endpointNamed(t, s, addr(i+1).String())
			if math.Abs(e.Share-w.share) > 1e-9 || e.State != w.state || !strings.HasPrefix(e.Out, w.out) || (e.Out == "") != (w.out == "") || e.Draining != (i == 3) {
				t.Errorf("endpoint %d is %+v, want %+v", i+1, e, w)
			}
		}
		if e := endpointNamed(t, s, addr(3).String()); e.Error != "connection refused" {
			t.Errorf("endpoint 3 is %+v, want why it has failed", e)
		}
		if l := s.Clusters[0].Leaves[0].Priorities[0].Localities[0]; math.Abs(l.Share-1) > 1e-9 || s.Watched.IsZero() {
			t.Errorf("the locality is %+v, watched since %v", l, s.Watched)
		}
		b.load(t, 40, 1) // 40 RPCs; the RPCs to endpoint 1 fail
		s = b.inspected()
		if one, two := endpointNamed(t, s, addr(1).String()), endpointNamed(t, s, addr(2).String()); one.OK != 0 || one.FailedRPCs != 10 || two.OK != 30 || two.FailedRPCs != 0 {
			t.Errorf("of 40 RPCs are counted %+v and %+v, want 10 that failed and 30", one, two)
		}
		js, err := json.Marshal(s)
		var again report.TargetStatus
		if err != nil || json.Unmarshal(js, &again) != nil || !reflect.DeepEqual(again.Clusters, s.Clusters) {
			t.Errorf("from JSON comes %+v (%v), want %+v", again, err, s)
		}
	})
}

// TestWatchEnds: RPCs are counted by endpoint while somebody looks, and for a minute after
// that; then the endpoints have no observers any more. An endpoint that comes meanwhile is
// counted, and one that moves goes on.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		set := func(p picker.Priority) {
			b.take(configOf(clusterOf("c", p)))
			for _, l := range p.Localities {
				for _, e := range l.Endpoints.All() {
					cc.conn(t, int(e.Addr.Addr().As4()[3])).to(ready)
				}
			}
			b.flush()
		}
		set(prio(eps(1, 2)))
		b.load(t, 10)
		if e := endpointNamed(t, b.inspected(), addr(1).String()); e.OK != 0 {
			t.Errorf("before anybody looked, %d RPCs were counted", e.OK)
		}
		b.load(t, 10)
		kit.Pass(watchTime - time.Second)
		if e := endpointNamed(t, b.inspected(), addr(1).String()); e.OK != 5 {
			t.Errorf("%d RPCs are counted, want 5", e.OK)
		}
		set(prio(eps(2), eps(1, 3)))
		kit.Pass(watchTime - time.Second)
		if e := endpointNamed(t, b.inspected(), addr(1).String()); e.OK != 5 {
			t.Errorf("%d RPCs are counted of an endpoint that moved, want 5", e.OK)
		}
		before := endpointNamed(t, b.inspected(), addr(3).String()).OK
		b.load(t, 400)
		if e := endpointNamed(t, b.inspected(), addr(3).String()); e.OK == before {
			t.Error("no RPC is counted of an endpoint that came meanwhile")
		}
		kit.Pass(watchTime + time.Second)
		for _, l := range b.live() {
			for e := range l.endpoints {
				if e.observers.Load() != nil {
					t.Error("after a minute without a look, RPCs are still counted")
				}
			}
		}
		if s := b.inspected(); endpointNamed(t, s, addr(1).String()).OK != 0 || time.Since(s.Watched) != 0 {
			t.Errorf("the next look goes on with old counts: %+v", s)
		}
	})
}

// TestWatchedCallsAllocateNothing: the end of an RPC that is counted by endpoint.
func TestWatchedCallsAllocateNothing(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	b.set(configOf(clusterOf("c", prio(eps(1)))))
	b.to(cc.conn(t, 1), ready)
	b.flush()
	b.inspected()
	if n := testing.AllocsPerRun(10000, func() {
		r, err := b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: t.Context()})
		kit.Must(t, err)
		r.Done(balancer.DoneInfo{BytesSent: true, BytesReceived: true})
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if e := endpointNamed(t, b.inspected(), addr(1).String()); e.OK < 100 {
		t.Errorf("%d RPCs are counted", e.OK)
	}
}
