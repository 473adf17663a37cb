// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/picker"
)

// model is a slow picture of one cluster: which endpoints there are and what
// became of their connections.
type model struct {
	prios []picker.Priority
	state map[int]connectivity.State // by endpoint number; absent is never connected
}

// may returns the endpoints that a pick may go to by A27 and A56, given that
// no failover timer fires: those READY in the highest priority that has not
// failed. wait says that RPCs wait, since it is still connecting.
func (m *model) may() (ready map[string]bool, wait bool) {
	i := m.first()
	if i < 0 {
		return nil, false
	}
	ready, _ = m.in(m.prios[i])
	return ready, len(ready) == 0
}

// first returns the index of the highest priority that has not failed, or -1.
func (m *model) first() int {
	return slices.IndexFunc(m.prios, func(p picker.Priority) bool {
		ready, pending := m.in(p)
		return len(ready) > 0 || pending
	})
}

// in returns the endpoints of a priority that are READY, and whether others may
// become so.
func (m *model) in(p picker.Priority) (ready map[string]bool, pending bool) {
	ready = map[string]bool{}
	for _, l := range p.Localities {
		for _, e := range l.Endpoints.All() {
			switch m.state[numberOf(e.Addr)] {
			case connectivity.Ready:
				ready[e.Addr.String()] = true
			case connectivity.TransientFailure:
			default:
				pending = true
			}
		}
	}
	return ready, pending
}

// TestRandomInterleavings drives the balancer through random SubConn states,
// updates and picks, and checks every pick against the model. Failures are
// sticky in the model as they are in the balancer.
func TestRandomInterleavings(t *testing.T) {
	runs, steps := 200, 200
	if testing.Short() {
		runs = 40
	}
	for run := range runs {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(56, uint64(run)))
			b, cc := newTestLB(t, Config{})
			m := &model{state: map[int]connectivity.State{}}
			update := func() {
				m.prios = randomSplit(rng, rng.Perm(8)[:1+rng.IntN(7)])
				b.Update(configOf(clusterOf("c", m.prios...)))
				kept := map[int]connectivity.State{}
				for _, p := range m.prios {
					for _, l := range p.Localities {
						for _, e := range l.Endpoints.All() {
							if s, ok := m.state[numberOf(e.Addr)]; ok {
								kept[numberOf(e.Addr)] = s
							}
						}
					}
				}
				m.state = kept
			}
			update()
			for step := range steps {
				switch rng.IntN(10) {
				case 0:
					update()
				default:
					n := rng.IntN(8)
					if !cc.has(n) {
						continue
					}
					s := []connectivity.State{ready, ready, idle, connecting, failure}[rng.IntN(5)]
					cc.conn(t, n).to(s)
					switch {
					case s == idle || s == connecting:
						if m.state[n] != failure {
							m.state[n] = connecting
						}
					default:
						m.state[n] = s
					}
				}
				b.flush()
				may, wait := m.may()
				got, err := b.pick()
				switch {
				case err == nil && !may[got] && !m.readyBelow(got):
					t.Fatalf("step %d: picked %s, may pick %v", step, got, may)
				case errors.Is(err, balancer.ErrNoSubConnAvailable) && !wait:
					t.Fatalf("step %d: the pick waits, may pick %v", step, may)
				case err != nil && !errors.Is(err, balancer.ErrNoSubConnAvailable) && (wait || len(may) > 0):
					t.Fatalf("step %d: the pick failed with %v, may pick %v, wait %v", step, err, may, wait)
				}
			}
		})
	}
}

// readyBelow reports whether the address is READY in a priority below one that is
// still connecting: as long as that has its failover time, a lower one that was in
// use serves on.
func (m *model) readyBelow(addr string) bool {
	i := m.first()
	if i < 0 {
		return false
	}
	if ready, _ := m.in(m.prios[i]); len(ready) > 0 {
		return false
	}
	return slices.ContainsFunc(m.prios[i+1:], func(p picker.Priority) bool {
		ready, _ := m.in(p)
		return ready[addr]
	})
}

// TestRandomPolicies drives random updates, SubConn states and changes between
// gRPC's own round_robin as a custom policy, stubs, pick_first and the policies
// of the snapshot, and checks every pick against the model of
// TestRandomInterleavings: whoever connects the endpoints, RPCs go where they
// may. At each end no RPC is in flight, and no connection is left.
func TestRandomPolicies(t *testing.T) {
	runs, steps := 200, 100
	if testing.Short() {
		runs = 40
	}
	for run := range runs {
		synctest.Test(t, func(t *testing.T) {
			built()
			rng := rand.New(rand.NewPCG(52, uint64(run)))
			b, cc := newTestLB(t, Config{})
			m := &model{state: map[int]connectivity.State{}}
			kind, flat := 0, false
			// rest waits for all: round_robin wakes its endpoints from goroutines of
			// its own.
			rest := func() {
				synctest.Wait()
				b.flush()
				synctest.Wait()
			}
			update := func() {
				m.prios = randomSplit(rng, rng.Perm(8)[:1+rng.IntN(7)])
				if rng.IntN(2) == 0 {
					kind, flat = rng.IntN(4), rng.IntN(2) == 0
				}
				c := clusterOf("c", m.prios...)
				switch kind {
				case 1:
					c = customOf(flat, "round_robin", `{}`, m.prios...)
				case 2:
					c = customOf(flat, []string{stubA, stubB}[rng.IntN(2)], `{}`, m.prios...)
				case 3:
					c = firstOf(flat, false, m.prios...)
				}
				b.set(configOf(c))
				rest()
				// From here on the model knows all states.
				m.state = map[int]connectivity.State{}
				for n := range 8 {
					for cc.has(n) && m.state[n] != ready {
						b.to(cc.conn(t, n), ready)
						rest()
						m.state[n] = ready
					}
				}
				for n := range 8 {
					if !cc.has(n) { // pick_first has closed it
						delete(m.state, n)
					}
				}
			}
			update()
			for step := range steps {
				if rng.IntN(10) == 0 {
					update()
				} else if n := rng.IntN(8); kind < 2 && cc.has(n) {
					s := []connectivity.State{ready, ready, connecting, failure}[rng.IntN(4)]
					b.to(cc.conn(t, n), s)
					if s != connecting || m.state[n] != failure {
						m.state[n] = s
					}
				}
				rest()
				may, _ := m.may()
				got, err := b.pick()
				switch {
				case err == nil && !may[got] && !m.readyBelow(got):
					t.Fatalf("run %d, step %d, policy %d: picked %s, may pick %v", run, step, kind, got, may)
				case err != nil && len(may) > 0 && kind < 3:
					t.Fatalf("run %d, step %d, policy %d: the pick failed with %v, may pick %v", run, step, kind, err, may)
				case kind == 3 && errors.Is(err, balancer.ErrNoSubConnAvailable):
					t.Fatalf("run %d, step %d: pick_first waits", run, step)
				}
			}
			if n := breakerOf(b).InFlight(); n != 0 {
				t.Errorf("run %d: %d RPCs are in flight", run, n)
			}
			b.set(&picker.Config{})
			b.flush()
			if len(cc.conns) > 0 || cc.opened != cc.closed {
				t.Errorf("run %d: %d connections are left; opened %d, closed %d", run, len(cc.conns), cc.opened, cc.closed)
			}
		})
	}
}
