// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/lbpolicy"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

func TestMain(m *testing.M) {
	if os.Getenv(wireServer) != "" {
		serveWire()
		return
	}
	leak.VerifyTestMain(m)
}

// TestCycles checks that channels that come and go leave nothing behind.
func TestCycles(t *testing.T) {
	cycles := 10000
	if testing.Short() || raceEnabled {
		cycles = 500
	}
	bubble(t, func(t *testing.T) {
		h, cp, _ := serving(t, Options{})
		var before runtime.MemStats
		goroutines := 0
		for i := range cycles {
			c := Acquire(h.c.cfg, h.c.opts)
			w := &recorder{}
			w.cancel = c.view().Watch("svc", "svc", w)
			if w.must(t); i%10 == 0 {
				// Another target now and then, for which there is nothing.
				c.view().Watch(fmt.Sprint("t", i), "svc", w)()
			}
			w.cancel()
			c.Release()
			if i%100 == 0 {
				advance(time.Minute) // or the server remembers thousands of long lists of names
			}
			if i == cycles/10 {
				advance(time.Minute)
				goroutines = running()
				runtime.GC()
				runtime.ReadMemStats(&before)
			}
		}
		advance(time.Minute)
		if n := running(); n != goroutines || n == 0 {
			t.Errorf("%d goroutines, %d before", n, goroutines)
		}
		if n := h.targets(); n != 1 {
			t.Errorf("%d targets, want 1", n)
		}
		if n := h.entries(); n != 4 {
			t.Errorf("%d entries, want 4", n)
		}
		if n := cp.opened(); n != 1 {
			t.Errorf("%d streams, want 1", n)
		}
		var after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
			t.Errorf("the heap grew by %d bytes", grown)
		}
	})
}

// running returns how many goroutines there are in the test's bubble, which is at rest. Goroutines
// of the runtime and of other tests are not counted, since they come and go.
func running() int {
	synctest.Wait()
	var b strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&b, 2)
	return strings.Count(b.String(), "synctest bubble ")
}

// TestRestart checks clients that are closed and made again.
func TestRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		cp.serve(targetOf("svc", 1)...)
		for range 50 {
			w := h.watch("svc")
			w.must(t)
			w.cancel()
			opts := h.c.opts
			h.c.Release()
			<-h.c.done
			h.c = Acquire(h.c.cfg, opts)
		}
		if n := cp.opened(); n != 50 {
			t.Errorf("%d streams, want 50", n)
		}
	})
}

// TestManyClusters checks that a target with 10,000 clusters takes as much memory as ten with 1000.
// It does not measure time, which depends on the machine's load.
func TestManyClusters(t *testing.T) {
	n := 10000
	if testing.Short() || raceEnabled {
		n = 1000
	}
	if few, many := clusterBytes(t, n/10), clusterBytes(t, n); 2*many > 3*few {
		t.Errorf("each of %d clusters takes %d bytes, each of %d %d", n, many, n/10, few)
	}
}

// clusterBytes returns how many bytes a first configuration of n clusters allocates for each.
func clusterBytes(t *testing.T, n int) uint64 {
	d := newDirect(t)
	names := make([]string, n)
	clusters, endpoints := make([]*anypb.Any, n), make([]*anypb.Any, n)
	for i := range n {
		names[i] = fmt.Sprint("c", i)
		clusters[i] = wrap(clusterTo(names[i], names[i]))
		endpoints[i] = wrap(endpointsAt(names[i], uint16(i)))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d.respond(lds, "1", wrap(listenerTo("svc", "r")))
	d.respond(rds, "1", wrap(xdstest.RouteConfig("r", testplane.WeightedRoute("", weighted(names)...))))
	d.respond(cds, "1", clusters...)
	d.respond(eds, "1", endpoints[:n-1]...)
	if d.w.updates != 0 {
		t.Error("an update before everything was there")
	}
	d.respond(eds, "2", endpoints[n-1])
	if d.w.updates != 1 {
		t.Errorf("%d updates, want 1", d.w.updates)
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
}

func weighted(names []string) (all []testplane.Weighted) {
	for _, name := range names {
		all = append(all, testplane.Weighted{Cluster: name, Weight: 1})
	}
	return all
}

// TestNoDemand checks that a server of which nothing is wanted is left alone.
func TestNoDemand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := serving(t, Options{Linger: -1})
		w.cancel()
		cp.hangUp(errors.New("going away"))
		advance(time.Hour)
		if n := cp.opened(); n != 1 {
			t.Errorf("%d streams, want 1", n)
		}
		h.watch("svc").must(t)
	})
}

// TestClosedAtOnce checks that a server which is given up before its goroutine
// had a turn ends like any other.
func TestClosedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		for range 100 {
			h.c.mu.Lock()
			h.c.pool.closeLocked(h.c.pool.serverLocked(h.c.cfg.Servers[0]))
			h.c.unlock()
		}
		if n := cp.opened(); n != 0 {
			t.Errorf("%d streams, want none", n)
		}
	})
}

// nesting is a Watcher that does everything a Watcher can do to its client, and
// waits for the result.
type nesting struct {
	h    *harness
	done chan struct{}
	once sync.Once
}

func (n *nesting) Error(error) {}
func (n *nesting) Update(*picker.Config) {
	n.once.Do(func() {
		c := Acquire(n.h.c.cfg, n.h.c.opts)
		got := &signalling{got: make(chan struct{})}
		cancel := c.view().Watch("inner", "inner", got)
		<-got.got
		c.ResolveNow()
		for range c.Resources() {
		}
		cancel()
		c.Release()
		close(n.done)
	})
}

type signalling struct {
	once sync.Once
	got  chan struct{}
}

func (s *signalling) Error(error)           {}
func (s *signalling) Update(*picker.Config) { s.once.Do(func() { close(s.got) }) }

// TestNested checks that a Watcher may wait for another target of the same
// client, as a channel does whose own control plane is reached through
// xDS.
func TestNested(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		cp.serve(append(targetOf("outer", 1), targetOf("inner", 2)...)...)
		n := &nesting{h: h, done: make(chan struct{})}
		defer h.c.view().Watch("outer", "outer", n)()
		select {
		case <-n.done:
		case <-time.After(10 * time.Second):
			t.Error("stuck")
		}
		synctest.Wait()
	})
}

// TestHappyPath follows a target through all four types, and checks which resources each step
// requests (A27-ARCH-3).
func TestHappyPath(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		w := h.watch("svc")
		cp.asked(lds, "svc")
		cp.send(lds, "1", listenerTo("svc", "routes"))
		cp.asked(rds, "routes")
		cp.send(rds, "1", routesTo("routes", "a", "b"))
		cp.asked(cds, "a", "b")
		cp.send(cds, "1", clusterTo("a", "ea"), clusterTo("b", "eb"))
		cp.asked(eds, "ea", "eb")
		cp.send(eds, "1", endpointsAt("ea", 1, 2))
		if w.got().updates+w.got().errs != 0 {
			t.Fatal("the watcher was called before everything was there")
		}
		cp.send(eds, "2", endpointsAt("eb", 3))
		cfg := w.must(t)
		if len(cfg.Routes) != 2 || len(cfg.Clusters) != 2 {
			t.Fatalf("config = %+v, want two routes and two clusters", cfg)
		}
		if a, b := ports(w.cluster(t, "a")), ports(w.cluster(t, "b")); a != "a 1 2" || b != "b 3" {
			t.Errorf("endpoints = %q and %q", a, b)
		}
		if w.got().updates != 1 || w.got().errs != 0 {
			t.Errorf("%d updates and %d errors, want 1 and 0", w.got().updates, w.got().errs)
		}
	})
}

// TestAcquire checks who shares a client, and how long it lives (D4).
func TestAcquire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		config := func(id string) *bootstrap.Config {
			cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+serverDoc("nowhere")+`], "node": {"id": "`+t.Name()+id+`"}}`))
			kit.Must(t, err)
			return cfg
		}
		a, b, other := Acquire(config("1"), Options{}), Acquire(config("1"), Options{}), Acquire(config("2"), Options{})
		if a != b || a == other {
			t.Errorf("clients %p, %p and %p; want the first two to be the same", a, b, other)
		}
		a.Release()
		advance(time.Minute)
		if a.ctx.Err() != nil {
			t.Error("closed with a user left")
		}
		b.Release()
		advance(29 * time.Second)
		if again := Acquire(config("1"), Options{}); again != a {
			t.Error("a client that lingers was not taken up again")
		}
		advance(time.Minute)
		if a.ctx.Err() != nil {
			t.Error("closed with a user left")
		}
		a.Release()
		other.Release()
		<-a.done
		<-other.done
		fresh := Acquire(config("1"), Options{Linger: -1})
		if fresh == a {
			t.Error("a client that was closed was taken up again")
		}
		cancel := fresh.view().Watch("svc", "svc", &recorder{})
		fresh.Release()
		<-fresh.done
		cancel()
		fresh.view().Watch("svc", "svc", &recorder{})()
		if _, _, err := fresh.Conn(fresh.cfg.Servers[0].Key()); err == nil {
			t.Error("a channel from a client that is closed")
		}
	})
}

// TestAcquireOptions checks that clients are shared unless an option requires another connection or
// accepts other resources (D4).
func TestAcquireOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { acquireOptions(t) })
}

func acquireOptions(t *testing.T) {
	t.Helper()
	cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+serverDoc("nowhere")+`], "node": {"id": "`+t.Name()+`"}}`))
	kit.Must(t, err)
	agent := grpc.WithUserAgent("a")
	shares := func(a, b Options) bool {
		one, two := Acquire(cfg, a), Acquire(cfg, b)
		one.Release()
		two.Release()
		advance(time.Hour)
		return one == two
	}
	// Other values than the default for each field.
	other := Options{
		DialOptions:         []grpc.DialOption{agent},
		Policies:            new(lbpolicy.Registry),
		DNS:                 manual.NewBuilderWithScheme("dns"),
		Filter:              func(string) *resource.FilterType { return nil },
		Delta:               true,
		Linger:              -1,
		ResourceTimeout:     1,
		ConnectFailureAfter: 1,
		BackoffBase:         1,
		BackoffMax:          1,
		ReconnectSpread:     1,
		AcceptHostnames:     true,
		Logger:              slog.Default(),
		TargetOptions:       TargetOptions{LocalCluster: "fleet", DropDeleted: true, MaxHashBytes: 1},
	}
	shared := []string{"Delta", "Linger", "ResourceTimeout", "ReconnectSpread", "Logger", "TargetOptions"}
	fields := reflect.ValueOf(other)
	for i := range fields.NumField() {
		var one Options
		reflect.ValueOf(&one).Elem().Field(i).Set(fields.Field(i))
		name := fields.Type().Field(i).Name
		if got, want := shares(Options{}, one), slices.Contains(shared, name); fields.Field(i).IsZero() || got != want {
			t.Errorf("options that differ in %s share a client: %v, want %v", name, got, want)
		}
		if !shares(one, one) {
			t.Errorf("equal options with %s do not share a client", name)
		}
	}
	for _, tt := range []struct {
		name   string
		a, b   Options
		shared bool
	}{
		{"explicit defaults", Options{}, Options{Linger: 30 * time.Second, BackoffBase: time.Second, DialOptions: []grpc.DialOption{}}, true},
		{"the same dial options in another slice", other, Options{
			DialOptions: []grpc.DialOption{agent}, Policies: other.Policies, DNS: other.DNS, Filter: other.Filter, Delta: true,
			Linger: -1, ResourceTimeout: 1, ConnectFailureAfter: 1, BackoffBase: 1, BackoffMax: 1, ReconnectSpread: 1, AcceptHostnames: true,
		}, true},
		{"dial options with equal effects", Options{DialOptions: []grpc.DialOption{agent}}, Options{DialOptions: []grpc.DialOption{grpc.WithUserAgent("a")}}, false},
		{"repeated dial options", Options{DialOptions: []grpc.DialOption{agent}}, Options{DialOptions: []grpc.DialOption{agent, agent}}, false},
		{"values that cannot be compared", Options{DNS: slicedDNS{}}, Options{DNS: slicedDNS{}}, false},
	} {
		if got := shares(tt.a, tt.b); got != tt.shared {
			t.Errorf("%s: shared %v, want %v", tt.name, got, tt.shared)
		}
	}
}

// TestCombinedOptions: users of a client with different times and variants get the longest times,
// and incremental ADS if any requests it. The difference is logged. A client without users takes
// the options of the next one.
func TestCombinedOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+serverDoc("nowhere")+`], "node": {"id": "`+t.Name()+`"}}`))
		kit.Must(t, err)
		var log strings.Builder
		first := Acquire(cfg, Options{Linger: time.Minute, ResourceTimeout: time.Second, ReconnectSpread: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		is := func(when string, want combined, timeout time.Duration, lines int) {
			t.Helper()
			synctest.Wait()
			if first.combined != want {
				t.Errorf("%s: %+v, want %+v", when, first.combined, want)
			}
			if got := first.resourceTimeoutLocked(cfg.Servers[0]); got != timeout {
				t.Errorf("%s: resources may take %v, want %v", when, got, timeout)
			}
			if n := strings.Count(log.String(), "different options"); n != lines {
				t.Errorf("%s: %d lines, want %d:\n%s", when, n, lines, &log)
			}
		}
		is("first", combined{linger: time.Minute, timeout: time.Second, spread: -1}, time.Second, 0)
		Acquire(cfg, Options{Linger: time.Minute, ResourceTimeout: time.Second, ReconnectSpread: -1})
		is("the same", combined{linger: time.Minute, timeout: time.Second, spread: -1}, time.Second, 0)
		Acquire(cfg, Options{Linger: time.Second, ResourceTimeout: 20 * time.Second, ReconnectSpread: time.Minute, Delta: true})
		is("other", combined{delta: true, linger: time.Minute, timeout: 20 * time.Second, spread: time.Minute}, 20*time.Second, 1)
		for range 3 {
			first.Release()
		}
		if again := Acquire(cfg, Options{Linger: -1}); again != first {
			t.Error("a client that lingers was not shared")
		}
		is("next", combined{linger: -1, defaultTimeout: true}, 15*time.Second, 1)
		first.Release()
		<-first.done
	})
}

// slicedDNS is a resolver.Builder that cannot be compared.
type slicedDNS []resolver.Builder

func (slicedDNS) Scheme() string { return "dns" }
func (slicedDNS) Build(resolver.Target, resolver.ClientConn, resolver.BuildOptions) (resolver.Resolver, error) {
	return nil, errors.New("no names")
}
