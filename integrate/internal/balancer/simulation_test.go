// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/integrate/internal/weights"
	"github.com/xdslb/xdslb/picker"
)

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
		low := prio(eps(3))
		low.Localities[0].ID.Zone = "low"
		return clusterOf("c", prio(eps(1, 2)), low)
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
					if e := endpointIn(c, addr(n).String()); e != nil {
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
	b, cc := newTestLB(t, Config{})
	b.set(configOf(clusterOf("simulated", prio(eps(1)))))
	b.to(cc.conn(t, 1), ready)
	b.flush()
	if _, err := b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: t.Context()}); err != nil {
		t.Fatal(err)
	}
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
