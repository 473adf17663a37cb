// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/leak"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
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
