// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

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
// no failover timer fires: those READY in the highest priority that has any,
// as long as all higher ones have failed. wait says that RPCs wait.
func (m *model) may() (ready map[string]bool, wait bool) {
	for _, p := range m.prios {
		ready = map[string]bool{}
		pending := false
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				switch m.state[numberOf(e)] {
				case connectivity.Ready:
					ready[e.Addr.String()] = true
				case connectivity.TransientFailure:
				default:
					pending = true
				}
			}
		}
		if len(ready) > 0 || pending {
			return ready, len(ready) == 0
		}
	}
	return nil, false
}

func numberOf(e picker.Endpoint) int {
	a := e.Addr.Addr().As4()
	return int(a[1])<<16 | int(a[2])<<8 | int(a[3])
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
						for _, e := range l.Endpoints {
							if s, ok := m.state[numberOf(e)]; ok {
								kept[numberOf(e)] = s
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

// readyBelow reports whether the address is READY anywhere: while a higher
// priority is still connecting, one that was in use and is READY serves on.
func (m *model) readyBelow(addr string) bool {
	for _, p := range m.prios {
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				if e.Addr.String() == addr {
					return m.state[numberOf(e)] == ready
				}
			}
		}
	}
	return false
}
