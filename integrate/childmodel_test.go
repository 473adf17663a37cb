// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/picker"
)

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
