// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestFleetReturns has a thousand clients lose their control plane for half a minute and get it
// back. After the first second, no 100 ms have more than 200 attempts to connect, or streams, and
// all clients are back within 15 s. The clients draw at random without a seed; the limits are far
// from the expected values. The clients are real, the time is not: gRPC's backoff between
// connections and the backoff between streams are both at work.
func TestFleetReturns(t *testing.T) {
	const down = 30 * time.Second
	for name, unavailable := range map[string]bool{"refused": false, "unavailable": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				clients, limit := 1000, 200
				if testing.Short() || raceEnabled {
					clients, limit = 150, 60 // small numbers scatter
				}
				f := newFleet(t, clients)
				advance(time.Minute)
				f.take()
				begin := time.Now()
				if unavailable { // streams fail, connections do not
					f.cp.Serve(false, false)
				} else {
					f.cp.refuse(errRefused)
				}
				advance(down)
				f.cp.Serve(true, true)
				f.cp.refuse(nil)
				back := time.Now()
				attempts, unanswered := f.take() // no stream opened by now has had a response
				advance(3 * time.Minute)
				later, opened := f.take()
				first := begin.Add(time.Second)
				attempts = slices.DeleteFunc(slices.Concat(unanswered, attempts, later), func(at time.Time) bool { return at.Before(first) })
				most := max(busiest(attempts, 100*time.Millisecond), busiest(opened, 100*time.Millisecond))
				slices.SortFunc(opened, time.Time.Compare)
				last := opened[len(opened)-1].Sub(back)
				t.Logf("%d clients: %d attempts, %d in the worst 100 ms; back after %v to %v", clients, len(attempts), most, opened[0].Sub(back), last)
				if most > limit {
					t.Errorf("%d attempts in 100 ms, want %d at most", most, limit)
				}
				if last > 15*time.Second || len(opened) < clients {
					t.Errorf("%d of %d clients are back, the last one after %v", len(opened), clients, last)
				}
				f.release()
			})
		})
	}
}

// fleet is clients of one server, and when they try to connect and open streams.
type fleet struct {
	t       *testing.T
	cp      *fake
	clients []*Client
	watches []*recorder

	mu               sync.Mutex
	attempts, opened []time.Time
}

// take returns when clients have tried to connect, and opened streams, since the last call.
func (f *fleet) take() (attempts, opened []time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	attempts, opened = f.attempts, f.opened
	f.attempts, f.opened = nil, nil
	return attempts, opened
}

func newFleet(t *testing.T, clients int) *fleet {
	f := &fleet{t: t, cp: newFake(t, "cp"), clients: make([]*Client, clients), watches: make([]*recorder, clients)}
	f.cp.serve(targetOf("svc", 1)...)
	cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+serverDoc("cp")+`]}`))
	kit.Must(t, err)
	note := func(times *[]time.Time) {
		f.mu.Lock()
		defer f.mu.Unlock()
		*times = append(*times, time.Now())
	}
	opts := Options{Linger: -1, Logger: slog.New(slog.DiscardHandler), DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			note(&f.attempts)
			return f.cp.Dial(ctx, addr)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := streamer(ctx, desc, cc, method, opts...)
			if err == nil {
				note(&f.opened)
			}
			return s, err
		}),
	}}.withDefaults()
	for i := range f.clients {
		f.clients[i] = newClient(cfg, opts)
		f.clients[i].users = 1
		f.watches[i] = &recorder{}
		f.clients[i].view().Watch("svc", "svc", f.watches[i])
	}
	synctest.Wait()
	if len(f.opened) != clients {
		t.Fatalf("%d streams of %d clients", len(f.opened), clients)
	}
	return f
}

// release ends the clients, none of which has heard of an outage.
func (f *fleet) release() {
	for i, c := range f.clients {
		if got := f.watches[i].got(); got.updates != 1 || got.errs != 0 {
			f.t.Fatalf("client %d: %d updates and %d errors; %v", i, got.updates, got.errs, got.err)
		}
		c.Release()
		<-c.done
	}
	f.cp.Stop()
}

// busiest returns how many of the times lie within d of each other at most.
func busiest(times []time.Time, d time.Duration) (most int) {
	slices.SortFunc(times, time.Time.Compare)
	for from, to := 0, 0; from < len(times); from++ {
		for to < len(times) && times[to].Sub(times[from]) < d {
			to++
		}
		most = max(most, to-from)
	}
	return most
}

// TestManyTargets watches one target, and then 50 of the same bootstrap that share their routes,
// like the targets of one mesh: each has its own Listener, and all Listeners lead to the same
// RouteConfiguration of 10 clusters. There is one stream, and no endpoint is held twice. The memory
// for a further target, mostly the client's records of watched resources and the test server's of
// requested ones, does not depend on the endpoints; so it is less than a quarter in all if there
// are many endpoints (D4). The limits leave room for memory that goroutines of other tests hold and
// release meanwhile.
func TestManyTargets(t *testing.T) {
	for _, tt := range []struct {
		endpoints int // of each cluster
		times     float64
	}{{1000, 2.5}, {8000, 1.25}} {
		t.Run(fmt.Sprint(tt.endpoints), func(t *testing.T) { manyTargets(t, tt.endpoints, tt.times) })
	}
}

func manyTargets(t *testing.T, endpoints int, times float64) {
	const targets, clusters, each = 50, 10, 16 << 10
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		held := func() int64 {
			synctest.Wait()
			runtime.GC()
			runtime.GC() // frees objects that the first one only swept
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		var all xdstest.Resources
		var names []string
		for i := range clusters {
			names = append(names, fmt.Sprint("c", i))
			cla, _ := manyEndpoints(endpoints)
			cla.ClusterName = names[i]
			all.Clusters = append(all.Clusters, clusterTo(names[i], names[i]))
			all.Endpoints = append(all.Endpoints, cla)
		}
		all.Routes = append(all.Routes, routesTo("r", names...))
		for i := range targets {
			all.Listeners = append(all.Listeners, listenerTo(fmt.Sprint("t", i), "r"))
		}
		kit.Must(t, cp.Update(all))
		none := held()
		watches := []*recorder{h.watch("t0")}
		watches[0].must(t)
		one := held() - none
		for i := 1; i < targets; i++ {
			watches = append(watches, h.watch(fmt.Sprint("t", i)))
			watches[i].must(t)
		}
		many := held() - none
		t.Logf("%d clusters of %d endpoints: %d KiB held with 1 target, %d KiB with %d: %.3f times, %d bytes for each further one",
			clusters, endpoints, one>>10, many>>10, targets, float64(many)/float64(one), (many-one)/(targets-1))
		if n := cp.opened(); n != 1 {
			t.Errorf("%d streams, want 1", n)
		}
		if float64(many) > times*float64(one) || many-one > each*(targets-1) {
			t.Errorf("%d targets hold %d bytes, one holds %d: want no more than %.1f times that, and %d for each", targets, many, one, times, each)
		}
		// They hold the same endpoints, not equal ones.
		a, b := watches[0].cluster(t, "c7"), watches[targets-1].cluster(t, "c7")
		if &a.Leaves[0].Priorities[0] != &b.Leaves[0].Priorities[0] {
			t.Error("two targets have copies of the same endpoints")
		}
		runtime.KeepAlive(all)
	})
}

// TestIdenticalBytes checks that a response with the bytes of before costs no
// decoding and publishes nothing: neither to the watcher, nor in the cache
// (T-XDS-10).
func TestIdenticalBytes(t *testing.T) {
	d := newDirect(t)
	for i, m := range targetOf("svc")[:3] {
		d.respond(resource.Type(i), "1", wrap(m))
	}
	first, second := manyEndpoints(10000)
	d.respond(eds, "1", wrap(first))
	updates := d.w.updates
	e := d.c.cache.entries[entryKey{eds, "svc"}]
	value, when := e.value, e.updated
	same := wrap(first)
	for i := range 3 {
		version := fmt.Sprint(2 + i)
		allocs := testing.AllocsPerRun(5, func() { d.respond(eds, version, same) })
		if allocs > 1000 { // not one for each; pools that were emptied are filled again
			t.Errorf("%v allocations for 10,000 endpoints that are known", allocs)
		}
		if e.version != version || e.value != value || e.updated != when || d.w.updates != updates {
			t.Errorf("version %q, another value: %v, %d updates; want version %q and nothing else", e.version, e.value != value, d.w.updates-updates, version)
		}
	}
	d.respond(eds, "9", wrap(second))
	if d.w.updates != updates+1 {
		t.Errorf("%d updates for a change, want 1", d.w.updates-updates)
	}
}
