// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

func BenchmarkAlias(b *testing.B) {
	for _, n := range []int{3, 100, 1000} {
		weights := make([]uint32, n)
		rng := newRand(1)
		for i := range weights {
			weights[i] = 1 + rng.Uint32N(1000)
		}
		a := mustAlias(b, weights)
		b.Run(fmt.Sprintf("impl=alias/n=%d", n), func(b *testing.B) {
			sum := 0
			for b.Loop() {
				sum += a.Pick(rand.Uint64())
			}
			sink.Store(int64(sum))
		})
		b.Run(fmt.Sprintf("impl=branchy/n=%d", n), func(b *testing.B) {
			sum := 0
			for b.Loop() {
				sum += pickBranchy(a, rand.Uint64())
			}
			sink.Store(int64(sum))
		})
		b.Run(fmt.Sprintf("impl=draw/n=%d", n), func(b *testing.B) { // the floor: the random word alone
			sum := uint64(0)
			for b.Loop() {
				sum += rand.Uint64()
			}
			sink.Store(int64(sum))
		})
	}
}

var sink atomic.Int64

// pickBranchy is Pick with the choice written down as one.
func pickBranchy(a *Alias, r uint64) int {
	column := int(r >> 33 * uint64(len(a.cells)) >> 31)
	if c := &a.cells[column]; r*uint64(len(a.cells)) < c.threshold {
		return int(c.self)
	} else {
		return int(c.other)
	}
}

func BenchmarkBreaker(b *testing.B) {
	b.Run("impl=breaker", func(b *testing.B) {
		br := new(Breaker)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if br.Acquire(1024) {
					br.Release()
				}
			}
		})
	})
	b.Run("impl=cas", func(b *testing.B) { // no early refusals
		n := new(Counter)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				for {
					v := n.n.Load()
					if v >= 1024 {
						break
					}
					if n.n.CompareAndSwap(v, v+1) {
						n.n.Add(^uint64(0))
						break
					}
				}
			}
		})
	})
}

// BenchmarkLoad issues and ends an RPC, back to back (work=0) or with some time
// before and after.
func BenchmarkLoad(b *testing.B) {
	spend := func(n int, x uint64) uint64 {
		for range n {
			x = x*6364136223846793005 + 1442695040888963407
		}
		return x
	}
	for _, work := range []int{0, 100} {
		b.Run(fmt.Sprintf("layout=joint/work=%d", work), func(b *testing.B) {
			l := new(Load)
			b.RunParallel(func(pb *testing.PB) {
				var x uint64
				for pb.Next() {
					l.issue()
					x = spend(work, x)
					l.finish(CallOK)
					x = spend(work, x)
				}
				sink.Store(int64(x))
			})
		})
		b.Run(fmt.Sprintf("layout=split/work=%d", work), func(b *testing.B) {
			issued, ok := new(Counter), new(Counter)
			b.RunParallel(func(pb *testing.PB) {
				var x uint64
				for pb.Next() {
					issued.Add()
					x = spend(work, x)
					ok.Add()
					x = spend(work, x)
				}
				sink.Store(int64(x))
			})
		})
	}
}

// benchWorld has localities of equal size that share the endpoints.
func benchWorld(localities, n, drops int, unreported bool) *world {
	rng := newRand(1)
	var list []Locality
	for i := range localities {
		weights := make([]uint32, n/localities)
		for k := range weights {
			weights[k] = 1 + rng.Uint32N(100)
		}
		list = append(list, zone(fmt.Sprint(i), 1+uint32(i), endpoints(i*n, weights...)))
	}
	w := newWorld()
	w.cfg.Clusters, w.states, w.breakers, w.loads, w.known = nil, nil, nil, nil, nil
	leaf := Leaf{MaxRequests: 1024, Priorities: []Priority{{Localities: list}}}
	for i := range drops {
		leaf.Drops = append(leaf.Drops, Drop{Category: fmt.Sprint(i), PerMillion: 100})
	}
	w.unreported = unreported
	w.add(leaf)
	return w
}

// unlimit removes the limit of the world's only cluster, whose breaker then counts nothing.
func (w *world) unlimit() {
	w.leaf(0).MaxRequests = math.MaxUint32
	w.breakers[0] = &Breaker{Unlimited: true}
	clear(w.known[0])
	w.ready()
}

// BenchmarkPickFinish is an RPC's whole way through the snapshot, the random word
// and the end included. Its floor is a plain round robin over the endpoints.
func BenchmarkPickFinish(b *testing.B) {
	b.Run("impl=roundrobin", func(b *testing.B) {
		var (
			states = make([]*EndpointState, 10)
			next   = new(Counter)
		)
		b.RunParallel(func(pb *testing.PB) {
			var e *EndpointState
			for pb.Next() {
				e = states[next.n.Add(1)%uint64(len(states))]
			}
			if e != nil {
				b.Fail()
			}
		})
	})
	for _, test := range []struct {
		localities, endpoints, drops int
		unreported                   bool
	}{
		{1, 10, 0, true}, {1, 10, 0, false}, {1, 200, 0, false}, {3, 30, 0, false}, {3, 30, 2, false}, {5, 200, 2, false},
	} {
		name := fmt.Sprintf("impl=snapshot/localities=%d/endpoints=%d/drops=%d/lrs=%t", test.localities, test.endpoints, test.drops, !test.unreported)
		b.Run(name, func(b *testing.B) {
			w := benchWorld(test.localities, test.endpoints, test.drops, test.unreported)
			s := w.build(b)
			states := w.flat(0)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					var r uint64
					if s.NeedsRandom() {
						r = rand.Uint64()
					}
					if result := s.Pick(bg, "/package.Service/Method", r); result.Outcome == Picked {
						states[result.Index].Finish(CallOK)
					}
				}
			})
		})
	}
}

// BenchmarkPolicy picks with each policy from 3 localities of 10 endpoints, and ends
// the RPC, with load reports and no drops.
func BenchmarkPolicy(b *testing.B) {
	names := map[PolicyKind]string{
		PolicyEDF: "edf", PolicyRoundRobin: "roundrobin", PolicyRingHash: "ring", PolicyMaglev: "maglev",
		PolicyLeastRequest: "least", PolicyClientWRR: "wrr", PolicyPickFirst: "first", PolicyCustom: "custom",
		PolicyLeastLatency: "latency", PolicyPrequal: "prequal", // without answers
	}
	for _, policy := range policies {
		for _, flat := range []bool{true, false} {
			b.Run(fmt.Sprintf("policy=%s/flat=%t", names[policy.Kind], flat), func(b *testing.B) {
				w := benchWorld(3, 30, 0, false)
				policy.Flat, policy.SlowStart = flat, nil
				begin := time.Now()
				w.clock = NewClock(func() int64 { return int64(time.Since(begin)) })
				w.leaf(0).Policy = policy
				w.renew(0)
				for i, e := range w.flat(0) {
					e.Connectivity = Ready
					e.SetWeight(float64(i%7 + 1))
				}
				s, list, timed := w.build(b), w.flat(0), policy.TimesRPCs()
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						var r uint64
						if s.NeedsRandom() {
							r = rand.Uint64()
						}
						switch result := s.Pick(bg, "/package.Service/Method", r); {
						case result.Outcome == Picked && timed:
							list[result.Index].FinishTimed(CallOK)
						case result.Outcome == Picked:
							list[result.Index].Finish(CallOK)
						case result.Outcome == Delegate:
							s.Cancel(result)
						}
					}
				})
			})
		}
	}
}

// BenchmarkClientWRR picks by weights that endpoints report. It takes about as long
// for 100,000 of them as for 10, and as long if one is 65,535 times as heavy as the
// rest as if all are the same.
func BenchmarkClientWRR(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		for _, skew := range []float64{1, 65535} {
			b.Run(fmt.Sprintf("n=%d/skew=%.0f", n, skew), func(b *testing.B) {
				w := benchWorld(1, n, 0, false)
				w.leaf(0).Policy, w.leaf(0).MaxRequests = Policy{Kind: PolicyClientWRR, Flat: true, WRR: &ClientWRR{}}, math.MaxUint32
				w.renew(0)
				for i, e := range w.flat(0) {
					e.Connectivity = Ready
					e.SetWeight(max(1, skew*float64(1-min(i, 1))))
				}
				s := w.build(b)
				b.ReportAllocs()
				for b.Loop() {
					s.Pick(bg, "/package.Service/Method", 0)
				}
			})
		}
	}
}

// BenchmarkMatch finds the route of an RPC to one of n methods, each with a
// route of its own, in a random order.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{1, 3, 20, 100, 1000} {
		w := newWorld(zone("a", 1, endpoints(0, 1)))
		to := w.cfg.Routes[0].Clusters
		var methods []string
		w.cfg.Routes = nil
		for i := range n {
			m := fmt.Sprintf("/some.package.v1.Service%d/Method%d", i/10, i%10)
			methods = append(methods, m)
			w.cfg.Routes = append(w.cfg.Routes, Route{Path: StringMatch{Kind: MatchExact, Value: m}, Clusters: to})
		}
		w.cfg.Routes = append(w.cfg.Routes, Route{Clusters: to})
		s := w.build(b)
		rng := newRand(1)
		rng.Shuffle(n, func(i, j int) { methods[i], methods[j] = methods[j], methods[i] })
		for len(methods) < 1024 {
			methods = append(methods, methods[:min(len(methods), 1024-len(methods))]...)
		}
		b.Run(fmt.Sprintf("impl=index/n=%d", n), func(b *testing.B) {
			sum, i := int32(0), 0
			for b.Loop() {
				route, _, _ := s.Match(bg, methods[i&1023], 0)
				sum, i = sum+route, i+1
			}
			sink.Store(int64(sum))
		})
		b.Run(fmt.Sprintf("impl=linear/n=%d", n), func(b *testing.B) {
			sum, i := int32(0), 0
			for b.Loop() {
				for k := range w.cfg.Routes {
					if w.cfg.Routes[k].Path.matches(methods[i&1023]) {
						sum += int32(k)
						break
					}
				}
				i++
			}
			sink.Store(int64(sum))
		})
	}
}

// BenchmarkPickUpdates picks while another goroutine publishes a snapshot with
// a change for so many in 1000 picks.
func BenchmarkPickUpdates(b *testing.B) {
	for _, updates := range []int{0, 1, 10} {
		b.Run(fmt.Sprintf("updates=%d", updates), func(b *testing.B) {
			w := benchWorld(3, 30, 2, false)
			var current atomic.Pointer[Snapshot]
			current.Store(w.build(b))
			states := w.flat(0)
			i := 0
			for b.Loop() {
				if i++; updates > 0 && i%(1000/updates) == 0 {
					states[0].Connectivity ^= Ready ^ Connecting
					w.states[0].Version++
					current.Store(w.build(b))
				}
				if result := current.Load().Pick(bg, "/s/m", rand.Uint64()); result.Outcome == Picked {
					states[result.Index].Finish(CallOK)
				}
			}
		})
	}
}

// BenchmarkBuild makes the snapshot after one endpoint of one cluster has
// changed.
func BenchmarkBuild(b *testing.B) {
	for _, test := range []struct{ clusters, localities, endpoints int }{{1, 1, 100}, {1, 10, 10000}, {1000, 1, 10}} {
		b.Run(fmt.Sprintf("clusters=%d/localities=%d/endpoints=%d", test.clusters, test.localities, test.endpoints), func(b *testing.B) {
			w := benchWorld(test.localities, test.endpoints, 0, false)
			for range test.clusters - 1 {
				w.add(*w.leaf(0))
			}
			w.build(b)
			states := w.flat(0)
			b.ReportAllocs()
			for b.Loop() {
				states[0].Connectivity ^= Ready ^ Connecting
				w.states[0].Version++
				w.build(b)
			}
		})
	}
}

// BenchmarkRebuild makes the snapshot after one of n endpoints in five localities has another
// weight, or another state. With versions only its locality is looked at.
func BenchmarkRebuild(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		for _, change := range []string{"weight", "state"} {
			for _, versions := range []bool{false, true} {
				b.Run(fmt.Sprintf("change=%s/n=%d/versions=%t", change, n, versions), func(b *testing.B) {
					w := benchWorld(5, n, 0, false)
					localities := w.states[0].Localities
					note := func(k int) {
						if versions {
							localities[k].Version++
						}
					}
					for k := range localities {
						note(k)
					}
					s, list := w.build(b), w.flat(0)
					b.ReportAllocs()
					for i := uint32(0); b.Loop(); i++ {
						w.states[0].Version++
						if change == "state" {
							list[0].Connectivity ^= Ready ^ Connecting
							note(0)
						} else {
							w.reweigh(0, 1+i%100)
						}
						s = Rebuild(s, []ClusterChange{{0, w.cfg.Clusters[0], &w.states[0]}}, w.env)
					}
				})
			}
		}
	}
}

// hashWorld has n endpoints whose policy hashes, of which so many in 1000 are up.
func hashWorld(kind PolicyKind, n, up int, balance uint32) (w *world, hash *uint64) {
	list := endpoints(0, make([]uint32, n)...)
	for i := range list {
		list[i].Weight = 1
	}
	w, hash, _ = ringWorld(kind, RingPolicy{MinSize: 4096, MaxSize: 4096, XXH64: true, BalanceFactor: balance}, zone("a", 1, list))
	if kind == PolicyMaglev {
		w.leaf(0).Policy.Ring.MinSize = 65537
	}
	for i, e := range w.flat(0) {
		if i*1000 >= n*up {
			e.Connectivity = TransientFailure
		}
	}
	return w, hash
}

// BenchmarkPickHash picks by hash, and ends the RPC, with 1000 endpoints of which
// so many in 1000 are up (the cost is to be flat).
func BenchmarkPickHash(b *testing.B) {
	for _, kind := range []PolicyKind{PolicyRingHash, PolicyMaglev} {
		for _, up := range []int{1000, 10, 0} {
			for _, balance := range []uint32{0, 125} {
				b.Run(fmt.Sprintf("impl=%s/up=%d/balance=%d", map[PolicyKind]string{PolicyRingHash: "ring", PolicyMaglev: "maglev"}[kind], up, balance), func(b *testing.B) {
					w, hash := hashWorld(kind, 1000, up, balance)
					s, list := w.build(b), w.flat(0)
					b.ReportAllocs()
					for b.Loop() {
						*hash = *hash*6364136223846793005 + 1442695040888963407
						if got := s.Pick(bg, "/s/m", *hash); got.Outcome == Picked {
							list[got.Index].Finish(CallOK)
						}
					}
				})
			}
		}
	}
	b.Run("impl=header", func(b *testing.B) { // the hash of a header of 20 bytes
		w, _ := hashWorld(PolicyRingHash, 1000, 1000, 0)
		values := make([][]string, 1024)
		for i := range values {
			values[i] = []string{fmt.Sprintf("user-%015d", i*7919)}
		}
		i := 0
		w.env.RequestHash = nil
		w.env.Header = func(context.Context, string) []string { i++; return values[i&1023] }
		w.cfg.Routes[0].Hash = []HashPolicy{{Header: "user"}}
		s, list := w.build(b), w.flat(0)
		b.ReportAllocs()
		for b.Loop() {
			if got := s.Pick(bg, "/s/m", 0); got.Outcome == Picked {
				list[got.Index].Finish(CallOK)
			}
		}
	})
}

// BenchmarkBuildHash makes the snapshot after one of 1000 connections has failed or
// come back, or one weight has changed.
func BenchmarkBuildHash(b *testing.B) {
	for _, kind := range []PolicyKind{PolicyRingHash, PolicyMaglev} {
		for _, change := range []string{"connection", "weight"} {
			b.Run(fmt.Sprintf("kind=%s/change=%s", map[PolicyKind]string{PolicyRingHash: "ring", PolicyMaglev: "maglev"}[kind], change), func(b *testing.B) {
				w, _ := hashWorld(kind, 1000, 990, 0)
				w.build(b)
				list := w.flat(0)
				b.ReportAllocs()
				for b.Loop() {
					if change == "connection" {
						list[0].Connectivity ^= Ready ^ TransientFailure
					} else {
						l := w.leaf(0).Priorities[0].Localities[0].Endpoints.Slice()
						l[0].Weight ^= 3
						w.leaf(0).Priorities = []Priority{{Localities: []Locality{zone("a", 1, l)}}}
					}
					w.states[0].Version++
					w.build(b)
				}
			})
		}
	}
}
