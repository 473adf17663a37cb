// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestFleetReturns has a thousand clients lose their control plane and get it
// back, and counts the streams in each second of their return: no second is expected to
// see more than 12 % of them, or 6 % after a minute. They draw their places at random, which
// follows no seed; the limits are more than seven standard deviations above that. The
// clients are real, the time is not: gRPC's backoff between connections and that between
// streams are both at work. TestBackoffStorm is about servers that end streams only.
func TestFleetReturns(t *testing.T) {
	for _, tt := range []struct {
		name             string
		clients, percent int
		down             time.Duration
	}{{"down for 5s", 1000, 20, 5 * time.Second}, {"down for 60s", 400, 15, time.Minute}} {
		clients, percent := tt.clients, tt.percent
		if testing.Short() || raceEnabled {
			clients, percent = 150, 32 // small numbers scatter
		}
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var mu sync.Mutex
				var opened []time.Time
				cp := newFake(t, "cp")
				defer cp.Stop()
				cp.serve(target("svc", 1)...)
				cfg, err := bootstrap.Parse("test", []byte(`{"xds_servers": [`+serverDoc("cp")+`]}`))
				if err != nil {
					t.Fatal(err)
				}
				opts := Options{Linger: -1, DialOptions: []grpc.DialOption{
					grpc.WithContextDialer(cp.Dial),
					grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
						s, err := streamer(ctx, desc, cc, method, opts...)
						if err == nil {
							mu.Lock()
							opened = append(opened, time.Now())
							mu.Unlock()
						}
						return s, err
					}),
				}}.withDefaults()
				fleet := make([]*Client, clients)
				watches := make([]*recorder, clients)
				for i := range fleet {
					fleet[i] = newClient(cfg, opts)
					fleet[i].users = 1
					watches[i] = &recorder{}
					fleet[i].Watch("svc", "svc", watches[i])
				}
				synctest.Wait()
				if len(opened) != clients {
					t.Fatalf("%d streams of %d clients", len(opened), clients)
				}
				advance(time.Minute)
				opened = nil
				cp.refuse(errRefused)
				advance(tt.down)
				cp.refuse(nil)
				back := time.Now()
				advance(3 * time.Minute)
				if len(opened) != clients {
					t.Errorf("%d streams of %d clients after the return", len(opened), clients)
				}
				// In any second: in each that begins with a stream.
				slices.SortFunc(opened, time.Time.Compare)
				most := 0
				for from, to := 0, 0; from < len(opened); from++ {
					for to < len(opened) && opened[to].Sub(opened[from]) < time.Second {
						to++
					}
					most = max(most, to-from)
				}
				t.Logf("%d clients: %.1f %% of them in the worst second; the first after %v, the last after %v", clients,
					100*float64(most)/float64(clients), opened[0].Sub(back).Round(time.Millisecond), opened[len(opened)-1].Sub(back).Round(time.Millisecond))
				if limit := clients * percent / 100; most > limit {
					t.Errorf("%d of %d clients return in one second, want %d at most", most, clients, limit)
				}
				for i, c := range fleet {
					if got := watches[i].got(); got.updates != 1 || got.errs != 0 {
						t.Fatalf("client %d: %d updates and %d errors; %v", i, got.updates, got.errs, got.err)
					}
					c.Release()
					<-c.done
				}
			})
		})
	}
}

// TestManyTargets watches one target, and then 50 of the same bootstrap that share
// their routes, as those of one mesh do: Listeners of their own, that all lead to
// the same RouteConfiguration of 10 clusters. There is one stream, and no endpoint is
// held twice. What a further target adds, mostly notes on what it watches and the
// test server's on what it was asked for, does not depend on the endpoints; so it is
// less than a quarter in all if those are many (D4). The limits leave room for what
// goroutines of other tests hold and let go of meanwhile.
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
			runtime.GC() // what the first one only swept
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
		if err := cp.Update(all); err != nil {
			t.Fatal(err)
		}
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
	for i, m := range target("svc")[:3] {
		d.respond(resource.Type(i), "1", wrap(m))
	}
	first, second := manyEndpoints(10000)
	d.respond(eds, "1", wrap(first))
	updates := d.w.updates
	e := d.c.entries[entryKey{eds, "svc"}]
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
