// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
)

// TestManyLocalities: an update of a cluster costs time proportional to its localities.
func TestManyLocalities(t *testing.T) {
	// updating returns a function that updates a cluster twice, each time with all localities in
	// the opposite order.
	updating := func(n int) func() time.Duration {
		b, _ := newTestLB(t, Config{})
		localities := make([][]picker.Endpoint, n)
		forth, back := prio(localities...), prio(localities...)
		for i := range n {
			back.Localities[i].ID = forth.Localities[n-1-i].ID
		}
		b.Update(configOf(clusterOf("c", forth)))
		return func() time.Duration {
			start := time.Now()
			b.Update(configOf(clusterOf("c", back)))
			b.Update(configOf(clusterOf("c", forth)))
			return time.Since(start)
		}
	}
	updateFew, updateMany := updating(500), updating(5000)
	// The least of several times; of as many as it takes, since others may have kept
	// the machine from the long ones.
	few, many := time.Hour, time.Hour
	for round := 0; round < 3 || round < 1000 && many > 50*few; round++ {
		few, many = min(few, updateFew()), min(many, updateMany())
	}
	if many > 50*few {
		t.Errorf("an update of 5000 localities takes %v, one of 500 %v", many, few)
	}
}

// world draws configurations: routes of all kinds to some of the clusters, and clusters some of
// which are unchanged from the previous configuration.
type world struct {
	rng      *rand.Rand
	clusters map[string]*picker.Cluster
}

func (w *world) next() *picker.Config {
	cfg := &picker.Config{}
	named := map[string]bool{}
	to := func() picker.WeightedCluster {
		name := fmt.Sprint("c", w.rng.IntN(6))
		if !named[name] {
			named[name] = true
			if w.clusters[name] == nil || w.rng.IntN(3) == 0 {
				w.clusters[name] = clusterOf(name, prio(eps(w.rng.Perm(12)[:1+w.rng.IntN(4)]...)))
			}
			cfg.Clusters = append(cfg.Clusters, w.clusters[name])
		}
		return picker.WeightedCluster{Name: name, Weight: 1 + w.rng.Uint32N(9)}
	}
	second := time.Second
	for range w.rng.IntN(3) {
		half := uint32(500_000)
		r := picker.Route{Fraction: &half, Clusters: []picker.WeightedCluster{to()}}
		if w.rng.IntN(2) == 0 {
			r.Timeout = &second // takes an interceptor
		}
		cfg.Routes = append(cfg.Routes, r)
	}
	last := picker.Route{}
	for range 1 + w.rng.IntN(3) {
		last.Clusters = append(last.Clusters, to())
	}
	cfg.Routes = append(cfg.Routes, last)
	return cfg
}

// TestUpdatesUnderLoad: while routes and clusters change at random, 10⁵ times, no
// RPC fails, whether an interceptor chose its cluster before the change or its
// pick after; an RPC may have to wait for another pick, as it has in gRPC for a
// connection that is not there yet (A31, T-WATCH-1, T-WATCH-6).
func TestUpdatesUnderLoad(t *testing.T) {
	updates := 100_000
	if testing.Short() {
		updates = 5_000
	}
	const seed = 31
	b, cc := newTestLB(t, Config{})
	b.src = &Source{Channel: rpc.NewChannel(link.Options{}, rpc.ChannelOptions{Intercepted: true}), Configure: func([]methodconfig.Config) {}}
	t.Cleanup(b.src.Channel.Close)
	w := &world{rand.New(rand.NewPCG(seed, 7)), map[string]*picker.Cluster{}}
	step := func() {
		b.Update(w.next())
		for _, sc := range cc.Open() {
			sc.To(connectivity.Ready)
		}
		b.flush()
	}
	step()

	var stop atomic.Bool
	var rpcs, planned, waits atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				ctx := context.Background()
				if bound := b.bind(ctx); bound != ctx {
					ctx = bound
					planned.Add(1)
					runtime.Gosched() // the route may change now
				}
				res, err := b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: ctx})
				for errors.Is(err, balancer.ErrNoSubConnAvailable) && !stop.Load() {
					waits.Add(1)
					runtime.Gosched()
					res, err = b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: ctx})
				}
				switch {
				case err == nil:
					res.Done(balancer.DoneInfo{BytesReceived: true})
					rpcs.Add(1)
				case !errors.Is(err, balancer.ErrNoSubConnAvailable):
					t.Errorf("an RPC failed after %d: %v", rpcs.Load(), err)
					return
				}
				// Or two of these would have two processors to themselves, and
				// an update would wait for their time slices.
				runtime.Gosched()
			}
		})
	}
	for range updates {
		step()
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("seed %d: %d updates, %d RPCs, %d of them planned, %d picks that had to wait", seed, updates, rpcs.Load(), planned.Load(), waits.Load())
	if planned.Load() == 0 {
		t.Error("no RPC went through an interceptor")
	}
}

// TestManyRoutes: many routes are compiled before the mutex is taken, once for each change of them,
// and their compiled form is dropped when it is published. Statuses name only the first ones of the
// routes that do not forward RPCs: a status takes 50 times as much memory as such a route in a
// response.
func TestManyRoutes(t *testing.T) {
	b, _ := newTestLB(t, Config{})
	cfg := configOf(clusterOf("c", prio(eps(0))))
	if b.route(cfg) != nil {
		t.Error("few routes are compiled separately")
	}
	cfg.Routes = slices.Concat(make([]picker.Route, 2000), cfg.Routes)
	for i := range 2000 {
		cfg.Routes[i].Path = picker.StringMatch{Kind: picker.MatchExact, Value: fmt.Sprint("/s/", i)}
	}
	if b.route(cfg) == nil {
		t.Error("many routes are not compiled without the mutex")
	}
	b.Update(cfg)
	if b.routed != nil {
		t.Error("the compiled routes are kept after their publication")
	}
	if b.route(cfg) != nil {
		t.Error("routes that did not change are compiled again")
	}
	errs := b.picker.current.Load().routeErrs
	if n := len(errs.notForwarding); n != maxRouteErrors {
		t.Errorf("there are statuses for %d routes, want %d", n, maxRouteErrors)
	}
	for route, named := range map[int32]bool{99: true, 100: false, 1999: false} {
		err := errs.notForwardingErr(route)
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "does not forward") || strings.Contains(err.Error(), "("+fmt.Sprint(route)) != named {
			t.Errorf("RPCs of route %d fail with %v; want the route's number: %t", route, err, named)
		}
	}
}

// TestCompileWithoutMutex: routes are compiled, which may take long and calls filters of the
// application, without the mutex: the balancer can be inspected and closed meanwhile. A
// configuration that was compiled while the balancer was closed is not applied.
func TestCompileWithoutMutex(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	b.src = &Source{Channel: rpc.NewChannel(link.Options{}, rpc.ChannelOptions{Intercepted: true}), Configure: func([]methodconfig.Config) {}}
	t.Cleanup(b.src.Channel.Close)
	compiled := 0
	rpc.RegisterHTTPFilter(rpc.HTTPFilter{Config: "test.CompileWithoutMutex", Intercept: func(any, any) (grpc.UnaryClientInterceptor, grpc.StreamClientInterceptor) {
		compiled++
		if !b.unlocked() {
			t.Error("the mutex is held while routes are compiled")
			return nil, nil
		}
		if compiled > 1 {
			b.Close()
		}
		return nil, nil
	}})
	config := func(endpoint int) *picker.Config {
		cfg := configOf(clusterOf("c", prio(eps(endpoint))))
		cfg.Filters = []picker.Filter{{Name: "f", Type: "test.CompileWithoutMutex"}}
		return cfg
	}
	opened := func() int { // Close shuts connections down on goroutines
		cc.Mu.Lock()
		defer cc.Mu.Unlock()
		return cc.Opened
	}
	first := config(0)
	b.Update(first)
	if compiled != 1 || opened() != 1 {
		t.Fatalf("the first configuration was compiled %d times and has %d connections, want 1 and 1", compiled, opened())
	}
	b.Update(config(1))
	if compiled != 2 || opened() != 1 {
		t.Errorf("%d configurations were compiled and %d connections made, want 2 and 1: the second was applied to a closed balancer", compiled, opened())
	}
}

// listEditor changes the endpoints of two localities, of which most stay in the chunks that
// they are in.
type listEditor struct {
	rng  *rand.Rand
	p    picker.Priority
	next int // number of an endpoint that has never been
}

// endpoint returns a new endpoint.
func (l *listEditor) endpoint() picker.Endpoint {
	l.next++
	return picker.Endpoint{Addr: addr(l.next), Weight: 1 + l.rng.Uint32N(5)}
}

// change makes one change: endpoints come and go, move in the list and to the other locality,
// or have another weight or health.
func (l *listEditor) change() {
	from, to := &l.p.Localities[0], &l.p.Localities[1]
	if l.rng.IntN(2) == 0 {
		from, to = to, from
	}
	if from.Endpoints.Len() == 0 {
		from.Endpoints = picker.ListOf(l.endpoint())
	}
	i, k := l.rng.IntN(from.Endpoints.Len()), l.rng.IntN(to.Endpoints.Len()+1)
	if l.rng.IntN(3) == 0 { // one that is the first of a chunk
		i = 0
	}
	e := *from.Endpoints.At(i)
	switch l.rng.IntN(8) {
	case 0:
		e.Weight++
		from.Endpoints = replace(from.Endpoints, i, i+1, e)
	case 1:
		e.Health ^= picker.Draining
		from.Endpoints = replace(from.Endpoints, i, i+1, e)
	case 2:
		from.Endpoints = replace(from.Endpoints, i, i+1, l.endpoint())
	case 3:
		from.Endpoints = replace(from.Endpoints, i, i+1)
	case 4:
		to.Endpoints = replace(to.Endpoints, k, k, l.endpoint())
	case 5:
		from.Endpoints, to.Endpoints = replace(from.Endpoints, i, i+1), replace(to.Endpoints, k, k, e)
	case 6:
		from.Endpoints = replace(from.Endpoints, i, i+1)
		i = l.rng.IntN(from.Endpoints.Len() + 1)
		from.Endpoints = replace(from.Endpoints, i, i, e)
	default: // many at once, so that chunks come and go
		n := min(i+l.rng.IntN(200), from.Endpoints.Len())
		others := make([]picker.Endpoint, l.rng.IntN(200))
		for i := range others {
			others[i] = l.endpoint()
		}
		from.Endpoints = replace(from.Endpoints, i, n, others...)
	}
}

// TestUpdateByChunks: an update that costs only the differences leaves each endpoint of the new
// lists in its place, with its previous connection: the same endpoint, unless it moved to another
// locality.
func TestUpdateByChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2026))
	b, cc := newTestLB(t, Config{})
	l := &listEditor{rng: rng, p: prio(nil, nil)}
	known := [2]map[string]*endpoint{}
	steps := 300
	if testing.Short() {
		steps = 100
	}
	for step := range steps {
		before := map[string]bool{}
		for k, loc := range l.p.Localities {
			known[k] = map[string]*endpoint{}
			for i, e := range loc.Endpoints.All() {
				known[k][e.Addr.String()] = b.clusters["c"].priorities[0].localities[k].endpoints[i]
				before[e.Addr.String()] = true
			}
		}
		next := picker.Priority{Localities: append([]picker.Locality(nil), l.p.Localities...)}
		l.p = next
		for range 1 + rng.IntN(3) {
			l.change()
		}
		cc.Opened = 0
		b.set(configOf(clusterOf("c", l.p)))
		b.flush()
		opened := 0
		for k, loc := range l.p.Localities {
			list := b.clusters["c"].priorities[0].localities[k].endpoints
			if len(list) != loc.Endpoints.Len() {
				t.Fatalf("step %d: %d endpoints, want %d", step, len(list), loc.Endpoints.Len())
			}
			for i, cfg := range loc.Endpoints.All() {
				a, e := cfg.Addr.String(), list[i]
				if old := known[k][a]; old != nil && old != e {
					t.Fatalf("step %d: endpoint %s is another one", step, a)
				}
				if e.Draining != (cfg.Health == picker.Draining) || e.loc != b.clusters["c"].priorities[0].localities[k] {
					t.Fatalf("step %d: endpoint %s of locality %d: draining: %v, locality %p", step, a, k, e.Draining, e.loc)
				}
				if !e.Draining && e.conn.sc.(*fakeConn).Addr != a {
					t.Fatalf("step %d: endpoint %s is connected to %s", step, a, e.conn.sc.(*fakeConn).Addr)
				}
				if !before[a] && !e.Draining {
					opened++
				}
			}
		}
		if cc.duplicate != "" || cc.Opened < opened {
			t.Fatalf("step %d: %d connections for %d new endpoints, duplicate %q", step, cc.Opened, opened, cc.duplicate)
		}
		b.checkCounts(t, step)
		for range 20 {
			if sc := cc.find(rng.IntN(l.next + 1)); sc != nil {
				b.to(sc, []connectivity.State{ready, failure}[rng.IntN(2)])
			}
		}
	}
}

// checkCounts compares the counts of the only priority with the states of its endpoints.
func (b *testLB) checkCounts(t *testing.T, step int) {
	t.Helper()
	p := b.clusters["c"].priorities[0]
	want := [4]int{}
	for e := range p.endpoints {
		if !e.Draining {
			want[e.Connectivity]++
		}
	}
	if p.counts != want {
		t.Fatalf("step %d: counts are %v, want %v", step, p.counts, want)
	}
}
