// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/integrate/internal/weights"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
)

// inspected is the result of Inspect for the balancer.
func (b *testLB) inspected() *report.TargetStatus {
	var s report.TargetStatus
	Status(b.Balancer, &s, true)
	return &s
}

// seen returns the status of an endpoint of the only cluster.
func seen(t testing.TB, s *report.TargetStatus, n int) *report.EndpointStatus {
	t.Helper()
	e := endpointIn(&s.Clusters[0], n)
	if e == nil {
		t.Fatalf("no endpoint %d in %+v", n, s)
	}
	return e
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
		b.ready(t, 1, 2)
		cc.conn(t, 3).To(failure)
		b.flush()

		s := b.inspected()
		want := []struct {
			share float64
			state string
			out   string
		}{{.25, "READY", ""}, {.75, "READY", ""}, {0, "TRANSIENT_FAILURE", "TRANSIENT_FAILURE for 0s"}, {0, "IDLE", "draining"}, {0, "IDLE", "its priority is not in use"}}
		for i, w := range want {
			e := seen(t, s, i+1)
			if math.Abs(e.Share-w.share) > 1e-9 || e.State != w.state || !strings.HasPrefix(e.Out, w.out) || (e.Out == "") != (w.out == "") || e.Draining != (i == 3) {
				t.Errorf("endpoint %d is %+v, want %+v", i+1, e, w)
			}
		}
		if e := seen(t, s, 3); e.Error != "connection refused" {
			t.Errorf("endpoint 3 is %+v, want why it has failed", e)
		}
		if l := s.Clusters[0].Leaves[0].Priorities[0].Localities[0]; math.Abs(l.Share-1) > 1e-9 || s.Watched.IsZero() {
			t.Errorf("the locality is %+v, watched since %v", l, s.Watched)
		}
		b.load(t, 40, 1) // 40 RPCs; the RPCs to endpoint 1 fail
		s = b.inspected()
		if one, two := seen(t, s, 1), seen(t, s, 2); one.OK != 0 || one.FailedRPCs != 10 || two.OK != 30 || two.FailedRPCs != 0 {
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
		b, _ := newTestLB(t, Config{})
		set := func(p picker.Priority) {
			b.take(configOf(clusterOf("c", p)))
			for _, l := range p.Localities {
				for _, e := range l.Endpoints.All() {
					b.ready(t, numberAt(e.Addr))
				}
			}
			b.flush()
		}
		set(prio(eps(1, 2)))
		b.load(t, 10)
		if e := seen(t, b.inspected(), 1); e.OK != 0 {
			t.Errorf("before anybody looked, %d RPCs were counted", e.OK)
		}
		b.load(t, 10)
		kit.Pass(watchTime - time.Second)
		if e := seen(t, b.inspected(), 1); e.OK != 5 {
			t.Errorf("%d RPCs are counted, want 5", e.OK)
		}
		set(prio(eps(2), eps(1, 3)))
		kit.Pass(watchTime - time.Second)
		if e := seen(t, b.inspected(), 1); e.OK != 5 {
			t.Errorf("%d RPCs are counted of an endpoint that moved, want 5", e.OK)
		}
		before := seen(t, b.inspected(), 3).OK
		b.load(t, 400)
		if e := seen(t, b.inspected(), 3); e.OK == before {
			t.Error("no RPC is counted of an endpoint that came meanwhile")
		}
		kit.Pass(watchTime + time.Second)
		b.wantUnobserved(t, "after a minute without a look")
		if s := b.inspected(); seen(t, s, 1).OK != 0 || time.Since(s.Watched) != 0 {
			t.Errorf("the next look goes on with old counts: %+v", s)
		}
	})
}

// TestRPCsAllocateNothing: nothing is allocated for RPCs that are counted by endpoint, nor under least
// latency.
func TestRPCsAllocateNothing(t *testing.T) {
	for name, policy := range map[string]func(*picker.Cluster) *picker.Cluster{
		"round robin":   func(c *picker.Cluster) *picker.Cluster { return c },
		"least latency": latency,
	} {
		for _, watched := range []bool{false, true} {
			b, _ := connected(t, policy(clusterOf("c", prio(eps(1, 2)))), 1, 2)
			b.flush()
			if watched {
				b.inspected()
			}
			if n := testing.AllocsPerRun(10000, func() {
				b.begin(t).Done(balancer.DoneInfo{BytesSent: true, BytesReceived: true})
			}); n > 0 {
				t.Errorf("%s, watched %v: %v allocations for an RPC, want none", name, watched, n)
			}
			if e := seen(t, b.inspected(), 1); watched && e.OK < 100 {
				t.Errorf("%s: %d RPCs are counted", name, e.OK)
			}
		}
	}
}

// TestExplainChangesNothing: nothing is connected, announced, published, counted or noted
// for an explanation, whatever the policy; IDLE endpoints stay so.
func TestExplainChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]*picker.Cluster{
			"round robin": clusterOf("c", prio(eps(1, 2)), prio(eps(3))),
			"ring":        ring(clusterOf("c", prio(eps(1, 2)))),
			"latency":     latency(clusterOf("c", prio(eps(1, 2)))),
			"pick_first":  firstOf(true, false, prio(eps(1, 2))),
			"custom":      customOf(false, stubA, `{}`, prio(eps(1), eps(2))),
		} {
			c.Leaves[0].Drops = []picker.Drop{{Category: "d", PerMillion: 500000}}
			b, cc := newTestLB(t, Config{})
			b.set(configOf(c))
			for round := range 2 {
				before := b.footprint(cc)
				for range 5 {
					b.explained(t, context.Background())
					b.explained(t, metadatautil.WithHash(context.Background(), 7))
				}
				synctest.Wait()
				if after := b.footprint(cc); after != before {
					t.Errorf("%s, round %d: explaining changed\n%s to\n%s", name, round, before, after)
				}
				if cc.has(1) {
					b.to(cc.conn(t, 1), ready)
				}
				b.flush()
			}
		}
	})
}

// footprint is all that an explanation could change.
func (b *testLB) footprint(cc *fakeCC) string {
	b.lock()
	defer b.unlock()
	open := cc.Open()
	cc.Mu.Lock()
	defer cc.Mu.Unlock()
	text := fmt.Sprintln(cc.Opened, cc.Closed, cc.Announced, cc.Now.ConnectivityState, b.version, len(b.rec.journal.Events()), b.nextPublish, b.rt.Idle(), b.picker.waiting.Load(), b.picker.current.Load())
	for _, sc := range open {
		text += fmt.Sprintln(sc.Addr, sc.Connects)
	}
	for _, l := range b.live() {
		drops, overload := l.dropCounters()
		text += fmt.Sprintln(l.breaker.InFlight(), drops[0].Load(), overload.Load())
		for _, p := range l.priorities {
			text += fmt.Sprintln(p.phase, p.counts, p.next, p.needsConnect)
			for _, loc := range p.localities {
				text += fmt.Sprintln(loc.load.Snapshot())
			}
		}
	}
	return text
}

// TestExplainDuringUpdates: explanations and updates do not get into each other's way, and
// an explanation that comes in between is whole all the same.
func TestExplainDuringUpdates(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	sets := [][]int{{1, 2, 3}, {3, 4}, {5, 1}, {2}}
	b.set(configOf(clusterOf("c", prio(eps(sets[0]...)))))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			b.set(configOf(clusterOf("c", prio(eps(sets[i%len(sets)]...)))))
			for _, n := range sets[i%len(sets)] {
				if sc := cc.find(n); sc != nil && n%2 == 1 {
					sc.To(ready)
				}
			}
		}
	}()
	for n := 0; ; n++ {
		x := b.explained(t, context.Background())
		c := onlyCluster(t, x)
		sum := c.Waits + c.Fails
		for _, l := range c.Status.Localities() {
			sum += l.Share
		}
		if c.Note == "" && math.Abs(sum-1) > 1e-9 {
			t.Fatalf("shares add up to %v:\n%v", sum, x)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// TestExplainManyRoutes: an RPC that may take each of many routes costs no more for each
// than one that may take a few.
func TestExplainManyRoutes(t *testing.T) {
	allocations := func(routes int) float64 {
		cfg := configOf(clusterOf("c", prio(eps(1))))
		fraction := uint32(1)
		some := cfg.Routes[0]
		some.Fraction = &fraction
		cfg.Routes = append(slices.Repeat([]picker.Route{some}, routes), cfg.Routes...)
		return testing.AllocsPerRun(1, func() {
			s, err := Simulate(cfg, Config{}.options(), nil)
			kit.Must(t, err)
			defer s.Close()
			if x, err := Explain(context.Background(), s.Balancer, "/s/m"); err != nil || len(x.Routes) != routes+1 {
				t.Fatalf("explained: %v, %v", x, err)
			}
		})
	}
	if few, many := allocations(50), allocations(500); many > 15*few {
		t.Errorf("50 routes take %v allocations, 500 take %v", few, many)
	}
}

// TestSimulation checks which endpoints get RPCs in states that are supposed, for each way of
// connecting: at once, on demand, by a child policy, and with several addresses.
func TestSimulation(t *testing.T) {
	draining := eps(1, 2)
	draining[0].Health = picker.Draining
	double := eps(1, 2)
	double[0].Extra = &picker.EndpointExtra{Addrs: []netip.AddrPort{addr(9)}}
	two := func() *picker.Cluster {
		return clusterOf("c", prio(eps(1, 2)), zone("low", eps(3)))
	}
	for _, row := range []struct {
		name    string
		cluster *picker.Cluster
		down    []int
		pending []int
		want    string // shares of endpoints 1 to 3, the states of 1 and 2, and the priority in use
	}{
		{"all READY", two(), nil, nil, "0.5 0.5 0 READY READY 0"},
		{"one is down", two(), []int{1}, nil, "0 1 0 TRANSIENT_FAILURE READY 0"},
		{"one connects", two(), nil, []int{1}, "0 1 0 CONNECTING READY 0"},
		{"the first priority is down", two(), []int{1, 2}, nil, "0 0 1   1"},
		{"the first priority connects", two(), nil, []int{1, 2}, "0 0 1   1"},
		{"the first that connects", two(), []int{3}, []int{1, 2}, "0 0 0 CONNECTING CONNECTING 0"},
		{"all down", two(), []int{1, 2, 3}, nil, "0 0 0   1"},
		{"draining", clusterOf("c", prio(draining)), nil, nil, "0 1 0 READY READY 0"},
		{"draining and down", clusterOf("c", prio(draining)), []int{1}, nil, "0 1 0 IDLE READY 0"},
		{"ring", ring(two()), nil, nil, "? ? 0 READY READY 0"},
		{"ring, one is down", ring(two()), []int{1}, nil, "0 1 0 TRANSIENT_FAILURE READY 0"},
		{"ring, all of a priority down", ring(two()), []int{1, 2}, nil, "0 0 1   1"},
		{"pick_first", firstOf(true, false, prio(eps(1, 2))), nil, nil, "1 0 0 READY IDLE 0"},
		{"pick_first, one is down", firstOf(true, false, prio(eps(1, 2))), []int{1}, nil, "0 1 0 IDLE READY 0"},
		{"custom", customOf(true, stubA, `{}`, prio(eps(1, 2))), nil, nil, "0 0 0 READY READY 0"},
		{"two addresses", clusterOf("c", prio(double)), nil, nil, "0.5 0.5 0 READY READY 0"},
		{"two addresses, both are down", clusterOf("c", prio(double)), []int{1}, nil, "0 1 0 TRANSIENT_FAILURE READY 0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				states := map[netip.AddrPort]connectivity.State{}
				for _, n := range row.down {
					states[addr(n)] = failure
				}
				for _, n := range row.pending {
					states[addr(n)] = connecting
				}
				begin := time.Now()
				s, err := Simulate(configOf(row.cluster), Config{}.options(), states)
				kit.Must(t, err)
				defer s.Close()
				x, err := Explain(context.Background(), s.Balancer, "/s/m")
				if err != nil || time.Since(begin) > 0 || x.Pending {
					t.Fatalf("after %v: %v\n%v", time.Since(begin), err, x)
				}
				c, got, names := onlyCluster(t, x), "", ""
				for n := 1; n <= 3; n++ {
					share := "0"
					if e := endpointIn(c.Status, n); e != nil {
						if share = fmt.Sprintf("%.3g", e.Share); strings.Contains(row.want, "?") && e.Share > 0 {
							share = "?" // by the ring
						}
						if n < 3 {
							names += e.State
						}
					}
					if got += share + " "; n < 3 {
						names += " "
					}
				}
				live := s.list.all[0]
				if got += fmt.Sprint(names, slices.Index(live.priorities, live.inUse)); got != row.want {
					t.Errorf("the cluster is %s, want %s:\n%v", got, row.want, x)
				}
			})
		})
	}
}

// TestSimulationIsApart checks that a simulation shares nothing with the channels of the process:
// neither circuit breakers nor the record of lines that are logged once.
func TestSimulationIsApart(t *testing.T) {
	b, _ := connected(t, clusterOf("simulated", prio(eps(1))), 1)
	b.flush()
	b.begin(t)
	before := breakersInUse()
	weighted := prio(eps(1, 2))
	edit(&weighted, 0, func(e *picker.Endpoint) { e.Weight = 3 })
	s, err := Simulate(configOf(clusterOf("simulated", weighted)), Config{}.options(), nil)
	kit.Must(t, err)
	x, err := Explain(context.Background(), s.Balancer, "/s/m")
	if err != nil || onlyCluster(t, x).Status.LeafInUse().InFlight != 0 || breakersInUse() != before {
		t.Errorf("%v: the simulation has %d RPCs of a channel in flight, and the process %d breakers of %d", err, onlyCluster(t, x).Status.LeafInUse().InFlight, breakersInUse(), before)
	}
	s.Close()
	if l := b.live()[0]; l.breaker.InFlight() != 1 || weights.Noted("simulated") || breakersInUse() != before {
		t.Errorf("after the simulation the channel has %d RPCs in flight, %d breakers; noted: %v", l.breaker.InFlight(), breakersInUse(), weights.Noted("simulated"))
	}
}

// breakersInUse returns the number of circuit breakers of the process.
func breakersInUse() (n int) {
	counters.Breakers(func(string, string, *counters.Breaker) { n++ })
	return n
}

// TestWaitReadyRests (A52): a child policy that stays IDLE is asked to connect by WaitReady
// once, and not over and over while that waits.
func TestWaitReadyRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newTestLB(t, Config{})
		_ = built()
		b.set(configOf(customOf(true, stubA, `{"Lazy":true}`, prio(eps(1)))))
		b.flush()
		s := one(t)
		s.mu.Lock()
		s.mute = true
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if closed, err := AwaitReady(ctx, b.Balancer, "/s/m"); closed || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WaitReady returned %v, closed: %v", err, closed)
		}
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.idled == 0 || s.idled > 3 {
			t.Errorf("the policy was asked to connect %d times in a second, want once", s.idled)
		}
	})
}

// lookedAt is a context of somebody who wants to know when it is looked at.
type lookedAt struct {
	context.Context
	look func()
}

func (c lookedAt) Value(key any) any {
	c.look()
	return c.Context.Value(key)
}

// TestWaitReadyAsksUnlocked: the context's own code, which may read the channel's status, is called
// without the mutex, also when the missing parts are determined.
func TestWaitReadyAsksUnlocked(t *testing.T) {
	b, _ := newTestLB(t, Config{})
	cfg := configOf(clusterOf("c", prio(eps(1))))
	cfg.Routes[0].Headers = []picker.HeaderMatch{{Name: "x", Kind: picker.HeaderPresent}}
	b.set(cfg)
	b.flush()
	looks := 0
	ctx := lookedAt{t.Context(), func() {
		looks++
		if !b.unlocked() {
			t.Error("the context is asked with the mutex held")
		}
	}}
	if isReady(ctx, b.Balancer, "/s/m") || Missing(ctx, b.Balancer, "/s/m") == "" || looks < 2 {
		t.Errorf("the cluster is ready, or the context was asked %d times, want 2", looks)
	}
}
