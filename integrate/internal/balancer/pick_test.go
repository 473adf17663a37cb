// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/picker"
)

// TestFractionDrawnOnce: an RPC is drawn between routes once, be it by an interceptor
// or its pick, so that a route gets its fraction whichever of the routes take an
// interceptor; and an RPC of a route that does never goes without (A28, A31).
func TestFractionDrawnOnce(t *testing.T) {
	const n = 20_000
	tenth, limits := uint32(1e5), [2]time.Duration{time.Second, 2 * time.Second}
	for _, limited := range [][2]bool{{true, false}, {false, true}, {true, true}, {false, false}} {
		cfg := configOf(clusterOf("canary", prio(eps(0))), clusterOf("rest", prio(eps(1))))
		cfg.Routes = []picker.Route{
			{Fraction: &tenth, Clusters: []picker.WeightedCluster{{Name: "canary", Weight: 1}}},
			{Clusters: []picker.WeightedCluster{{Name: "rest", Weight: 1}}},
		}
		for i, limited := range limited {
			if limited {
				cfg.Routes[i].Timeout = &limits[i]
			}
		}
		b, _ := newTestLB(t, Config{})
		b.take(cfg)
		b.ready(t, 0, 1)
		b.flush()
		var got [2]int
		for range n {
			info := balancer.PickInfo{FullMethodName: "/s/m", Ctx: b.bind(t.Context())}
			_, timed := info.Ctx.Deadline()
			res, err := b.picker.Pick(info)
			kit.Must(t, err)
			res.Done(balancer.DoneInfo{BytesReceived: true})
			route := numberOf(res)
			got[route]++
			if timed != limited[route] {
				t.Fatalf("limited %v: an RPC of route %d has a timeout: %v", limited, route, timed)
			}
		}
		if share := float64(got[0]) / n; math.Abs(share-.1) > .015 {
			t.Errorf("limited %v: the first route got %.3f of the RPCs, want .1", limited, share)
		}
	}
}

// TestFractionOfUnserved: a route's fraction of RPCs is refused if no cluster serves
// them, and not the fraction of a fraction, whether interceptors bind RPCs or not
// (A28, A36).
func TestFractionOfUnserved(t *testing.T) {
	const n = 20_000
	tenth, limit := uint32(1e5), time.Minute
	for _, limited := range []bool{false, true} {
		cfg := configOf(clusterOf("c", prio(eps(0))))
		cfg.Routes = []picker.Route{{Fraction: &tenth}, cfg.Routes[0]} // the first forwards nothing
		if limited {
			cfg.Routes[1].Timeout = &limit
			cfg.Routes[1].Headers = []picker.HeaderMatch{{Name: "x", Kind: picker.HeaderPresent}}
		}
		b, cc := newTestLB(t, Config{})
		b.take(cfg)
		cc.conn(t, 0).To(ready)
		b.flush()
		refused := 0
		for range n {
			res, err := b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: b.bind(t.Context())})
			if err != nil {
				refused++
				continue
			}
			res.Done(balancer.DoneInfo{BytesReceived: true})
		}
		if share := float64(refused) / n; math.Abs(share-.1) > .015 {
			t.Errorf("limited %v: %.3f of the RPCs were refused, want .1", limited, share)
		}
	}
}

// TestPicksTakeNoLock: while configurations and connections change all the time,
// neither picks nor ends of RPCs ever wait for a mutex or hold one up, as the
// runtime's block and mutex profiles see it.
func TestPicksTakeNoLock(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	b.Update(configOf(clusterOf("c", prio(eps(series(0, 50)...), eps(series(50, 50)...)))))
	for i := range 100 {
		cc.conn(t, i).To(ready)
	}
	b.flush()

	runtime.SetBlockProfileRate(1)
	defer runtime.SetBlockProfileRate(0)
	defer runtime.SetMutexProfileFraction(runtime.SetMutexProfileFraction(1))
	stop := make(chan struct{})
	var changes, picks sync.WaitGroup
	for w := range 2 { // two, so that there is something to see; each with SubConns of its own
		changes.Go(func() {
			for i := w; ; i += 2 {
				select {
				case <-stop:
					return
				default:
				}
				sc := cc.conn(t, i%100)
				sc.To(failure)
				sc.To(ready)
				b.flush()
			}
		})
	}
	for range 4 {
		picks.Go(func() {
			for range 50_000 {
				res, err := b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: t.Context()})
				if err != nil {
					t.Error(err)
					return
				}
				res.Done(balancer.DoneInfo{BytesReceived: true})
			}
		})
	}
	picks.Wait()
	// The changes go on until the profiles have seen them get in each other's way.
	seen := false
	for begin := time.Now(); !seen && time.Since(begin) < time.Minute; {
		seen = waits(t, func(function string) {
			if strings.HasSuffix(function, ".(*stablePicker).Pick") || strings.HasSuffix(function, ".(*endpoint).finish") {
				t.Errorf("%s waits for a lock, or holds one up", function)
			}
		})
	}
	close(stop)
	changes.Wait()
	if !seen {
		t.Error("the profiles have no contention, not even between changes")
	}
}

// waits visits the functions on the stacks of the block and mutex profiles, and
// reports whether the balancer's own lock is among them. It leaves out locks inside of the
// runtime, which the mutex profile has since Go 1.23: any goroutine may hold one up.
func waits(t *testing.T, visit func(function string)) (locked bool) {
	t.Helper()
	for _, profile := range []func([]runtime.BlockProfileRecord) (int, bool){runtime.BlockProfile, runtime.MutexProfile} {
		n, _ := profile(nil)
		records := make([]runtime.BlockProfileRecord, n+100)
		n, ok := profile(records)
		if !ok {
			continue
		}
		for _, r := range records[:n] {
			frames := runtime.CallersFrames(r.Stack())
			f, more := frames.Next()
			if strings.HasPrefix(f.Function, "runtime.unlock") || f.Function == "runtime._LostContendedRuntimeLock" {
				continue
			}
			for ; more; f, more = frames.Next() {
				visit(f.Function)
				locked = locked || strings.HasSuffix(f.Function, ".(*Balancer).lock") || strings.HasSuffix(f.Function, ".(*Balancer).unlock") || strings.HasSuffix(f.Function, ".(*testLB).flush")
			}
		}
	}
	return locked
}

// TestBreakerKeepsCount: a circuit breaker knows of RPCs in flight when the cluster
// changes its LRS server, and when it leaves the routes for a while (T-CB-2).
func TestBreakerKeepsCount(t *testing.T) {
	limited := func(server string) *picker.Cluster {
		c := clusterOf("keeps", prio(eps(1)))
		c.Leaves[0].MaxRequests, c.Leaves[0].Load.Server = 1, server
		return c
	}
	for name, changes := range map[string][]*picker.Cluster{
		"another LRS server": {limited("a"), limited("b")},
		"reports are off":    {limited("a"), limited("")},
		"gone and back":      {limited("a"), clusterOf("other", prio(eps(2))), limited("a")},
	} {
		b, cc := connected(t, changes[0], 1)
		b.flush()
		res := b.begin(t)
		for _, c := range changes[1:] {
			b.Update(configOf(c))
			b.flush()
		}
		cc.conn(t, 1).To(ready)
		b.flush()
		if _, err := b.pick(); err == nil {
			t.Errorf("%s: max_requests is 1, one RPC is in flight, and another was admitted", name)
		}
		res.Done(endedOK)
		wantPick(t, b, 1)
		b.Close()
	}
	counters.Breakers(func(cluster, _ string, _ *counters.Breaker) {
		if cluster == "keeps" {
			t.Error("the breaker is kept without users or RPCs in flight")
		}
	})
}

// TestBreakerWithoutLimit checks that RPCs of a cluster without a limit are not counted, and that
// RPCs that began without a limit do not count for a limit that is set later, and vice versa.
func TestBreakerWithoutLimit(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	update := func(limit uint32) {
		c := clusterOf("unlimited", prio(eps(1)))
		c.Leaves[0].MaxRequests = limit
		b.Update(configOf(c))
		cc.conn(t, 1).To(ready)
		b.flush()
	}
	refused := func(when string) {
		t.Helper()
		if _, err := b.pick(); err == nil {
			t.Errorf("%s: max_requests is 1, one RPC is in flight, and another was admitted", when)
		}
	}
	update(math.MaxUint32)
	unlimited := b.begin(t)
	counters.Breakers(func(cluster, _ string, _ *counters.Breaker) {
		if cluster == "unlimited" {
			t.Error("a cluster without a limit has a breaker")
		}
	})
	update(1)
	one := b.begin(t)
	refused("after a change to 1")
	unlimited.Done(endedOK)
	refused("after the end of an RPC from before")
	update(math.MaxUint32)
	b.begin(t).Done(endedOK)
	update(1)
	refused("after a change to no limit and back")
	one.Done(endedOK)
	b.begin(t).Done(endedOK)
}

// TestRefusalsAllocateNothing: a pick that ends an RPC, or finds no endpoint, returns an
// error that was made before, however often.
func TestRefusalsAllocateNothing(t *testing.T) {
	tests := map[string]func(*picker.Config){
		"dropped": func(c *picker.Config) {
			c.Clusters[0].Leaves[0].Drops = []picker.Drop{{Category: "d", PerMillion: 1e6}}
		},
		"breaker":         func(c *picker.Config) { c.Clusters[0].Leaves[0].MaxRequests = 0 },
		"default breaker": func(c *picker.Config) { c.Clusters[0].Leaves[0].DefaultLimit = true },
		"no route":        func(c *picker.Config) { c.Routes[0].Path = picker.StringMatch{Kind: picker.MatchExact, Value: "/x"} },
		"not forwarding":  func(c *picker.Config) { c.Routes[0].Clusters = nil },
		"no endpoints":    func(c *picker.Config) { c.Clusters[0].Leaves[0].Priorities = nil },
	}
	for name, change := range tests {
		b, cc := newTestLB(t, Config{DefaultMaxRequests: 1, Logger: slog.New(slog.DiscardHandler)})
		cfg := configOf(clusterOf("refused", prio(eps(0)))) // the process shares breakers by name
		change(cfg)
		b.set(cfg)
		if cc.has(0) {
			cc.conn(t, 0).To(ready)
		}
		b.flush()
		info := balancer.PickInfo{FullMethodName: "/s/m", Ctx: t.Context()}
		_, _ = b.picker.Pick(info) // uses up the default limit
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := b.picker.Pick(info); err == nil {
				t.Fatalf("%s: no error", name)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for each refused pick, want none", name, n)
		}
	}
}

// TestRefusalsFollow: the errors of rejected RPCs are built once for all configurations with the
// same drops and breaker, and rebuilt for each that differs.
func TestRefusalsFollow(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	leaf := picker.Leaf{Service: "s", MaxRequests: 1, Drops: []picker.Drop{{Category: "d", PerMillion: 1}, {Category: "e"}}}
	made := func(change func(*picker.Leaf)) (*rejections, string) {
		cfg := configOf(clusterOf("followed", prio(eps(0))))
		of := &cfg.Clusters[0].Leaves[0]
		of.Service, of.MaxRequests, of.Drops = leaf.Service, leaf.MaxRequests, slices.Clone(leaf.Drops)
		change(of)
		b.set(cfg)
		cc.conn(t, 0).To(ready)
		b.flush()
		r := b.picker.current.Load().clusters.At(0).rejections
		return r, fmt.Sprint(r.overload, r.drops)
	}
	first, _ := made(func(*picker.Leaf) {})
	if r, _ := made(func(l *picker.Leaf) { l.Priorities = []picker.Priority{prio(eps(0, 1))} }); r != first {
		t.Error("the statuses are rebuilt for another endpoint")
	}
	for want, change := range map[string]func(*picker.Leaf){
		`max requests 7 exceeded on service "s"`:        func(l *picker.Leaf) { l.MaxRequests = 7 },
		`max requests 1 exceeded on service "other"`:    func(l *picker.Leaf) { l.Service = "other" },
		`dropped by category "f" of cluster "followed"`: func(l *picker.Leaf) { l.Drops[1].Category = "f" },
	} {
		made(func(*picker.Leaf) {})
		if _, text := made(change); !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

// TestDefaultMaxRequests: the channel's default limit applies to clusters without a configured
// limit. Channels share the counter of a cluster and compare it with their own limits. A warning
// is logged once a minute while the default limit refuses RPCs.
func TestDefaultMaxRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		info := balancer.PickInfo{FullMethodName: "/s/m", Ctx: t.Context()}
		channel := func(limit uint32, name string, configured bool) (started func(n int) int) {
			b, cc := newTestLB(t, Config{DefaultMaxRequests: limit, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			cfg := configOf(clusterOf(name, prio(eps(0))))
			leaf := &cfg.Clusters[0].Leaves[0]
			leaf.MaxRequests, leaf.DefaultLimit = 1024, !configured
			b.set(cfg)
			cc.conn(t, 0).To(ready)
			b.flush()
			return func(n int) (ok int) {
				for range n {
					if _, err := b.picker.Pick(info); err == nil {
						ok++
					}
				}
				return ok
			}
		}
		warnings := func() int { synctest.Wait(); return strings.Count(log.String(), "default circuit breaker") }
		two, five := channel(2, "shared", false), channel(5, "shared", false)
		unlimited := channel(math.MaxUint32, "shared", false)
		for i, tt := range []struct {
			started  func(int) int
			n, want  int
			warnings int
		}{
			{two, 3, 2, 1}, {two, 3, 0, 1}, {five, 5, 3, 2}, {unlimited, 5000, 5000, 2},
			{channel(0, "other", false), 1025, 1024, 3}, {channel(7, "configured", true), 1025, 1024, 3},
		} {
			if got := tt.started(tt.n); got != tt.want {
				t.Errorf("step %d: %d of %d RPCs started, want %d", i, got, tt.n, tt.want)
			}
			if n := warnings(); n != tt.warnings {
				t.Errorf("step %d: %d warnings, want %d:\n%s", i, n, tt.warnings, log.String())
			}
		}
		time.Sleep(time.Minute)
		two(10)
		if n := warnings(); n != 4 {
			t.Errorf("%d warnings after a minute, want 4:\n%s", n, log.String())
		}
	})
}
