// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/ringhash"
)

// hashless is RPCs of a channel that have nothing to hash. As in gRPC each has a context of its
// own, until it ends.
type hashless struct {
	b       *testLB
	waiting []context.Context
	got     map[string]int
	ends    []func()
}

// begin makes RPCs. RPCs that find no connection wait.
func (h *hashless) begin(t *testing.T, n int) {
	for range n {
		ctx, end := context.WithCancel(t.Context())
		h.waiting, h.ends = append(h.waiting, ctx), append(h.ends, end)
	}
	h.repick(t)
}

// repick picks for all that wait, as gRPC does when it gets a new picker.
func (h *hashless) repick(t *testing.T) {
	t.Helper()
	h.b.flush()
	var left []context.Context
	for _, ctx := range h.waiting {
		res, err := h.b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: ctx})
		switch {
		case errors.Is(err, balancer.ErrNoSubConnAvailable):
			left = append(left, ctx)
		case err != nil:
			t.Fatal(err)
		default:
			res.Done(balancer.DoneInfo{BytesReceived: true})
			h.got[res.SubConn.(*fakeConn).Addr]++
		}
	}
	h.waiting = left
	synctest.Wait()
}

// end ends all RPCs.
func (h *hashless) end() {
	for _, end := range h.ends {
		end()
	}
}

// TestLazyRingHashless: an RPC that has nothing to hash waits for the connection of the endpoint
// which its random hash leads to, and connects no other (A42, T-RING-6). The state of the RPC is
// deleted when it ends.
func TestLazyRingHashless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		for range 10 {
			b, cc := newTestLB(t, Config{})
			b.Update(configOf(ring(clusterOf("c", prio(eps(series(0, n)...))))))
			rpc := &hashless{b: b, got: map[string]int{}}
			rpc.begin(t, 1)
			open := cc.open(n)
			if len(open) != 1 {
				t.Fatalf("the RPC connects endpoints %v, want one", open)
			}
			first := cc.conn(t, open[0])
			first.To(connecting)
			rpc.repick(t)
			if open := cc.open(n); len(rpc.waiting) != 1 || len(open) != 1 {
				t.Fatalf("the RPC connects endpoints %v, want to wait for the first", open)
			}
			first.To(ready)
			rpc.repick(t)
			if rpc.got[first.Addr] != 1 {
				t.Fatalf("the RPC went to %v with %s READY", rpc.got, first.Addr)
			}
			rpc.end()
			synctest.Wait()
			b.randomHashes.byDone.Range(func(any, any) bool {
				t.Error("the hash of an RPC is kept beyond its end")
				return false
			})
			if n := b.randomHashes.count.Load(); n != 0 {
				t.Errorf("%d hashes are counted, and no RPC is left", n)
			}
			b.Close()
			synctest.Wait()
		}
	})
}

// ringShares returns the share of each endpoint in a ring of ring's size, which is about its share
// of the weights.
func ringShares(t *testing.T, list []picker.Endpoint) []float64 {
	var hosts []ringhash.Host
	for _, e := range list {
		hosts = append(hosts, ringhash.Host{Key: e.Addr.String(), Weight: e.Weight})
	}
	r, err := ringhash.New(hosts, 1024, 4096, ringhash.XXH3)
	kit.Must(t, err)
	const points = 1 << 16
	shares := make([]float64, len(hosts))
	for i := range uint64(points) {
		shares[r.Pick(i*(math.MaxUint64/points))] += 1. / points
	}
	return shares
}

// TestHashlessShares: from the first RPC on, RPCs that have nothing to hash are shared by the
// weights of the endpoints, though some connect before others. One endpoint that does not answer
// delays its own share and nothing else (A42).
func TestHashlessShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		list := eps(0, 1, 2, 3)
		for i, weight := range []uint32{1, 1, 2, 4} {
			list[i].Weight = weight
		}
		b.Update(configOf(ring(clusterOf("c", prio(list)))))
		const silent, each = 2, 200
		rpcs := &hashless{b: b, got: map[string]int{}}
		for _, n := range []int{0, 3, 1} {
			rpcs.begin(t, each)
			cc.conn(t, n).To(ready)
			rpcs.repick(t)
		}
		for range 20 {
			rpcs.begin(t, each)
		}
		const made = 23 * each
		rpcs.got[addr(silent).String()] = len(rpcs.waiting)
		for n, share := range ringShares(t, list) {
			got := float64(rpcs.got[addr(n).String()]) / made
			if sigma := math.Sqrt(share * (1 - share) / made); math.Abs(got-share) > 7*sigma {
				t.Errorf("endpoint %d has %.3f of all RPCs, or has them wait, want its share of the ring, %.3f", n, got, share)
			}
		}
		rpcs.end()
		synctest.Wait()
	})
}

// TestDoneIdentifiesRPC checks the version of gRPC of this module: each RPC has a Done channel of its own,
// which the picks for its attempts have.
func TestDoneIdentifiesRPC(t *testing.T) {
	parent, picks := observePicks()
	if !identifies(parent, picks) || !doneIdentifiesRPC() {
		t.Errorf("Done channels of picks are %v, that of the application's context %v", picks, parent)
	}
	for method, dones := range picks {
		if len(dones) < 3 {
			t.Errorf("%d picks for %s, want at least 3: two for the first attempt and one for the second", len(dones), method)
		}
	}
}

// TestOtherDone checks that a version of gRPC with other Done channels is noticed.
func TestOtherDone(t *testing.T) {
	a, b, parent := make(chan struct{}), make(chan struct{}), make(chan struct{})
	type dones = []<-chan struct{}
	for name, rpcs := range map[string]map[string]dones{
		"no pick":                        {},
		"one pick for each RPC":          {"1": {a}, "2": {b}},
		"one RPC":                        {"1": {a, a}},
		"RPCs share a channel":           {"1": {a, a}, "2": {a, a}},
		"the application's":              {"1": {parent, parent}, "2": {b, b}},
		"none":                           {"1": {nil, nil}, "2": {b, b}},
		"one for each pick":              {"1": {a, b}, "2": {b, a}},
		"another one for a later pick":   {"1": {a, a, b}, "2": {b, b, b}},
		"the application's for one pick": {"1": {a, parent, a}, "2": {b, b}},
	} {
		if identifies(parent, rpcs) {
			t.Errorf("%s: seems to identify RPCs", name)
		}
	}
	if !identifies(parent, map[string]dones{"1": {a, a}, "2": {b, b, b}}) {
		t.Error("a channel for each RPC does not seem to identify it")
	}
}

// TestRandomHashPerPick checks that no hash is kept if contexts do not identify RPCs.
func TestRandomHashPerPick(t *testing.T) {
	h := &randomHashes{perPick: true}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for drawn := range uint64(3) {
		if got := h.Of(ctx, drawn, true); got != drawn || h.count.Load() != 0 {
			t.Errorf("the hash of a pick is %d, want %d; %d are kept", got, drawn, h.count.Load())
		}
	}
}

// takes has n RPCs begin, a millisecond apart, each of which ends after the time of its endpoint,
// and returns how many each endpoint got.
func (b *testLB) takes(t *testing.T, n int, takes map[int]time.Duration) map[int]int {
	t.Helper()
	got := map[int]int{}
	for range n {
		kit.Pass(time.Millisecond)
		res := b.begin(t)
		endpoint := numberOf(res)
		got[endpoint]++
		time.AfterFunc(takes[endpoint], func() { res.Done(balancer.DoneInfo{BytesSent: true, BytesReceived: true}) })
	}
	return got
}

// TestLeastLatencySwitch: the policy is switched to least latency and back while RPCs are in
// flight. Connections stay, each RPC ends where it began, and a slow endpoint gets few RPCs.
func TestLeastLatencySwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with := func(p picker.Policy) *picker.Config {
			c := clusterOf("c", prio(eps(1, 2), eps(3, 4)))
			c.Leaves[0].Policy = p
			return configOf(c)
		}
		leastRequest := with(picker.Policy{Kind: picker.PolicyLeastRequest, Flat: true, Least: &picker.LeastRequest{Choices: 2}})
		b, cc := newTestLB(t, Config{})
		b.set(leastRequest)
		b.ready(t, 1, 2, 3, 4)
		speeds := map[int]time.Duration{1: 200 * time.Millisecond, 2: 5 * time.Millisecond, 3: 5 * time.Millisecond, 4: 5 * time.Millisecond}
		for range 2 {
			b.takes(t, 300, speeds)
			b.set(with(picker.Policy{Kind: picker.PolicyLeastLatency, Flat: true, Latency: &picker.LeastLatency{Decay: 10 * time.Second}}))
			b.flush()
			b.takes(t, 1000, speeds)
			if n := b.takes(t, 1000, speeds)[1]; n > 10 {
				t.Errorf("the slow one of four endpoints got %d of 1000 RPCs", n)
			}
			x := onlyCluster(t, b.explained(t, context.Background()))
			slow, fast := endpointIn(x.Status, 1), endpointIn(x.Status, 2)
			if slow.Latency < .05 || fast.Latency < .004 || fast.Latency > .01 || slow.Share > 0 {
				t.Errorf("latencies of %.3f and %.3f s, a share of %.2f of the slow one, for 200 and 5 ms", slow.Latency, fast.Latency, slow.Share)
			}
			b.set(leastRequest)
			b.flush()
		}
		kit.Pass(time.Second)
		if n := breakerOf(b).InFlight(); n != 0 {
			t.Errorf("%d RPCs in flight at the end", n)
		}
		if cc.Opened != 4 {
			t.Errorf("opened %d connections, want 4", cc.Opened)
		}
	})
}

// TestLeastLatencyAfterClose: the clock of a closed channel stops by itself, and RPCs that end
// after the close do no harm.
func TestLeastLatencyAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := latency(clusterOf("c", prio(eps(1, 2))))
		b, _ := connected(t, c, 1)
		var ends []func(balancer.DoneInfo)
		for range 200 { // at once, which makes the clock coarse
			ends = append(ends, b.begin(t).Done)
		}
		b.Close()
		for _, done := range ends {
			done(balancer.DoneInfo{})
		}
		kit.Pass(time.Hour)
	})
}

// TestSlowStart: the share of an endpoint that becomes READY beside others follows
// Envoy's curve, the weight times max(min, (t/window)^(1/aggression)), as time goes
// by and without anything else happening; and so it does after a reconnection.
func TestSlowStart(t *testing.T) {
	const n, window, step = 20_000, 30 * time.Second, time.Second
	curve := func(age time.Duration) float64 {
		return min(max(math.Sqrt(float64(max(age, 0))/float64(window)), 0.1), 1)
	}
	policies := map[string]picker.Policy{
		"edf":           {Kind: picker.PolicyEDF},
		"least_request": {Kind: picker.PolicyLeastRequest, Least: &picker.LeastRequest{Choices: 2}},
		"client_wrr":    {Kind: picker.PolicyClientWRR, WRR: &picker.ClientWRR{UpdatePeriod: time.Second}},
	}
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				policy.SlowStart = &picker.SlowStart{Window: window, Aggression: 2, MinWeightPercent: 10}
				c := clusterOf("c", prio(eps(1, 2, 3, 4)))
				c.Leaves[0].Policy = policy
				b, cc := connected(t, c, 1, 2, 3)
				kit.Pass(window + 5*step)
				for range 2 {
					b.lock()
					if b.clusters["c"].slowStartTimer != nil {
						t.Error("the timer runs though no endpoint warms up")
					}
					b.unlock()
					cc.conn(t, 4).To(idle)
					cc.conn(t, 4).To(ready)
					since := time.Now()
					for _, pause := range []time.Duration{1, 4, 10, 14, 3} {
						kit.Pass(pause*step + 100*time.Millisecond)
						got := b.counts(t, n)[4]
						age := time.Since(since)
						share := func(f float64) float64 { return f / (3 + f) }
						low, high := share(curve(age-2*step)), share(curve(age))
						if s := float64(got) / n; s < 0.93*low || s > 1.07*high {
							t.Errorf("%v after it became READY the endpoint gets %.4f of RPCs, want %.4f to %.4f", age, s, low, high)
						}
					}
				}
			})
		})
	}
}

// TestFadeIn: with policies that hash, slow start begins when an endpoint becomes READY that an update has
// added, or that has failed before. Its part of the hashes that belong to it grows from a tenth to all of them
// as time goes by. An endpoint that connects late because no RPC has needed it, or that reconnects without
// having failed, has all of them at once.
func TestFadeIn(t *testing.T) {
	const n, window = 2000, 40 * time.Second
	for name, policy := range map[string]picker.Policy{
		"ring_hash": {Kind: picker.PolicyRingHash, Ring: &picker.RingPolicy{MinSize: 1000, MaxSize: 4096}},
		"maglev":    {Kind: picker.PolicyMaglev, Ring: &picker.RingPolicy{MinSize: 1009}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				policy.Flat = true
				policy.SlowStart = &picker.SlowStart{Window: window, Aggression: 1, MinWeightPercent: 10}
				cluster := func(numbers ...int) *picker.Cluster {
					c := clusterOf("c", prio(eps(numbers...)))
					c.Leaves[0].Policy = policy
					return c
				}
				b, cc := newTestLB(t, Config{})
				owned := func(of int) (hashes []uint64) {
					for i := range uint64(n) {
						hash := i * 0x9e3779b97f4a7c15
						if a, err := b.pickHash(hash); err == nil && a == addr(of).String() {
							hashes = append(hashes, hash)
						}
					}
					return hashes
				}
				connect := func(number int) {
					t.Helper()
					owned(number) // RPCs connect it
					synctest.Wait()
					cc.conn(t, number).To(ready)
					b.flush()
				}
				b.set(configOf(cluster(1, 2, 3)))
				third := 0
				for number := 1; number <= 3; number++ {
					connect(number)
					third = len(owned(3))
					kit.Pass(2 * window)
				}
				if got := len(owned(3)); got != third {
					t.Errorf("an endpoint that connects late has %d hashes at first, then %d", third, got)
				}

				fades := func(what string, all []uint64) (grown []uint64) {
					t.Helper()
					since, share := time.Now(), 0.
					for range 5 {
						grown = owned(4)
						age := float64(time.Since(since)) / float64(window)
						if share = float64(len(grown)) / float64(len(all)); all != nil && (share < max(.06, age-.12) || share > max(.15, age+.08)) {
							t.Errorf("%s: %v after it became READY the endpoint has %.2f of its hashes", what, time.Since(since), share)
						}
						kit.Pass(window / 4)
					}
					return grown
				}
				b.set(configOf(cluster(1, 2, 3, 4)))
				connect(4)
				first := len(owned(4))
				all := fades("added", nil)
				if ratio := float64(first) / float64(len(all)); ratio < .06 || ratio > .15 {
					t.Errorf("an endpoint that was added has %.2f of its hashes at first, want 0.1", ratio)
				}
				c := cc.conn(t, 4)
				c.To(idle)
				connect(4)
				if got := len(owned(4)); got != len(all) {
					t.Errorf("an endpoint that reconnects has %d of its %d hashes", got, len(all))
				}
				c.To(idle)
				kit.Pass(time.Second)
				owned(4) // RPCs connect it
				synctest.Wait()
				c.To(failure)
				kit.Pass(time.Second)
				c.To(idle)
				connect(4)
				fades("failed", all)
				b.lock()
				if b.clusters["c"].slowStartTimer != nil {
					t.Error("the timer runs though no endpoint warms up")
				}
				b.unlock()
			})
		})
	}
}

// TestZonesLoggedOnce: that the zones of the fleet are not known is no news as long as the
// reason is the same, however often the cluster changes.
func TestZonesLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		b, _ := newTestLB(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		update := func(text string, n int) {
			c := clusterOf("c", prio(eps(1, n)))
			c.Leaves[0].Policy.ZoneAware = &picker.ZoneAware{Enabled: 1}
			c.Leaves[0].Origin = &picker.Origin{Err: errors.New(text)}
			b.Update(configOf(c))
			kit.Pass(2 * time.Minute) // equal lines are left out for one
			b.calm()
		}
		for i, step := range []struct {
			text  string
			lines int
		}{{"missing", 1}, {"missing", 1}, {"invalid", 2}, {"invalid", 2}, {"missing", 3}} {
			update(step.text, 2+i)
			if n := strings.Count(log.String(), "has zone-aware routing"); n != step.lines {
				t.Errorf("step %d: %d lines, want %d:\n%s", i, n, step.lines, log.String())
			}
		}
		c := clusterOf("c", prio(eps(1)))
		c.Leaves[0].Policy.ZoneAware = &picker.ZoneAware{Enabled: 1}
		c.Leaves[0].Origin = &picker.Origin{}
		b.Update(configOf(c))
		b.calm()
		kit.Pass(time.Second)
		if n := strings.Count(log.String(), msgZones); n != 1 {
			t.Errorf("%d lines that zones are known, want 1:\n%s", n, log.String())
		}
	})
}
