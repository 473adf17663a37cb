// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/bench/kit"
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
		b, cc := newTestLB(t, Config{})
		b.take(cfg)
		cc.conn(t, 0).to(ready)
		cc.conn(t, 1).to(ready)
		b.flush()
		var got [2]int
		for range n {
			info := balancer.PickInfo{FullMethodName: "/s/m", Ctx: context.Background()}
			info.Ctx = b.bind(info.Ctx)
			_, timed := info.Ctx.Deadline()
			res, err := b.picker.Pick(info)
			kit.Must(t, err)
			res.Done(balancer.DoneInfo{BytesReceived: true})
			route := 0
			if res.SubConn.(*fakeConn).addr == addr(1).String() {
				route = 1
			}
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
		cc.conn(t, 0).to(ready)
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
		cc.conn(t, i).to(ready)
	}
	b.flush()

	runtime.SetBlockProfileRate(1)
	defer runtime.SetBlockProfileRate(0)
	defer runtime.SetMutexProfileFraction(runtime.SetMutexProfileFraction(1))
	stop := make(chan struct{})
	var changes, picks sync.WaitGroup
	for w := range 2 { // two, so that there is something to see
		changes.Go(func() {
			for i := w; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				sc := cc.conn(t, i%100)
				sc.to(failure)
				sc.to(ready)
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
