// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/picker"
)

// TestNoChurn is the connection invariant over random updates (users.md row
// 4): whatever moves between localities and priorities, is reordered,
// reweighted, drained, added or removed, an endpoint that is in the old and
// the new configuration keeps its connection; those that are gone are closed,
// and none is opened twice.
func TestNoChurn(t *testing.T) {
	steps := 100_000
	if testing.Short() {
		steps = 10_000
	}
	rng := rand.New(rand.NewPCG(4, 2026))
	b, cc := newTestLB(t, Config{})
	old := map[int]bool{}
	for step := range steps {
		perm := rng.Perm(24)[:1+rng.IntN(23)]
		next := map[int]bool{}
		for _, n := range perm {
			next[n] = true
		}
		b.Update(configOf(clusterOf("c", randomSplit(rng, perm)...)))
		b.flush()
		// Let everything fail until all priorities have been started, so that
		// every endpoint has a connection.
		for {
			cc.mu.Lock()
			open := len(cc.conns)
			conns := make([]*fakeConn, 0, open)
			for _, sc := range cc.conns {
				conns = append(conns, sc)
			}
			cc.mu.Unlock()
			for _, sc := range conns {
				sc.to(failure)
			}
			cc.mu.Lock()
			done := len(cc.conns) == open
			cc.mu.Unlock()
			if done {
				break
			}
		}
		cc.mu.Lock()
		wantOpen := 0
		for n := range next {
			if !old[n] {
				wantOpen++
			}
			if cc.conns[addr(n).String()] == nil {
				t.Fatalf("step %d: endpoint %d has no connection", step, n)
			}
		}
		wantClosed := 0
		for n := range old {
			if !next[n] {
				wantClosed++
			}
		}
		if cc.opened != wantOpen || cc.closed != wantClosed || cc.duplicate != "" {
			t.Fatalf("step %d: opened %d, closed %d, duplicate %q; want %d, %d, none", step, cc.opened, cc.closed, cc.duplicate, wantOpen, wantClosed)
		}
		cc.opened, cc.closed = 0, 0
		cc.mu.Unlock()
		old = next
	}
}

// randomSplit spreads endpoints over one to three priorities of one to three
// localities with names from a small set, so that localities move about.
func randomSplit(rng *rand.Rand, numbers []int) []picker.Priority {
	prios := make([]picker.Priority, 1+rng.IntN(3))
	for i := range prios {
		for _, z := range rng.Perm(4)[:1+rng.IntN(3)] {
			prios[i].Localities = append(prios[i].Localities, picker.Locality{ID: picker.LocalityID{Zone: string(rune('a' + z))}, Weight: 1 + rng.Uint32N(3)})
		}
	}
	for _, n := range numbers {
		p := &prios[rng.IntN(len(prios))]
		l := &p.Localities[rng.IntN(len(p.Localities))]
		l.Endpoints = append(l.Endpoints, picker.Endpoint{Addr: addr(n), Weight: 1 + rng.Uint32N(5)})
	}
	return prios
}

// TestSameUpdate: a configuration that changes nothing for the connections
// opens and closes nothing, and one with the same clusters publishes nothing
// that gRPC would have to hear of.
func TestSameUpdate(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	cfg := configOf(clusterOf("c", prio(eps(1, 2, 3), eps(4))))
	b.Update(cfg)
	for n := 1; n <= 4; n++ {
		cc.conn(t, n).to(ready)
	}
	b.flush()
	announced := cc.announced
	b.Update(configOf(clusterOf("c", prio(eps(3, 1, 2), eps(4)))))
	b.flush()
	b.Update(cfg)
	b.flush()
	if cc.opened != 4 || cc.closed != 0 {
		t.Errorf("opened %d and closed %d connections, want 4 and 0", cc.opened, cc.closed)
	}
	if cc.announced != announced {
		t.Errorf("gRPC was told %d new pickers, want none", cc.announced-announced)
	}
}

// startAll brings n endpoints up from nothing and returns how long it took.
func startAll(t testing.TB, n int) time.Duration {
	b, cc := newTestLB(t, Config{})
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	cfg := configOf(clusterOf("c", prio(eps(numbers...))))
	begin := time.Now()
	b.Update(cfg)
	conns := make([]*fakeConn, n)
	for i := range conns {
		conns[i] = cc.conn(t, i)
	}
	for _, sc := range conns {
		sc.to(connecting)
	}
	for _, sc := range conns {
		sc.to(connectivity.Ready)
	}
	b.flush()
	took := time.Since(begin)
	if _, err := b.pick(); err != nil {
		t.Fatalf("Pick() after start-up: %v", err)
	}
	return took
}

// TestStartUpIsLinear: 10,000 endpoints going CONNECTING and READY cost no
// more than twelve times what 1,000 do, and allocate at most 200 MiB (users.md
// row 1; stock grpc-go needs 30 s and 26.5 GiB).
func TestStartUpIsLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	startAll(t, 10_000)
	runtime.ReadMemStats(&m1)
	if got := m1.TotalAlloc - m0.TotalAlloc; got > 200<<20 {
		t.Errorf("10k endpoints coming up allocated %d MiB, want at most 200", got>>20)
	}
	// The least of several times; of as many as it takes, since others may have kept
	// the machine from all but one of the short ones.
	small, large := time.Hour, time.Hour
	for round := 0; round < 5 || round < 50 && (large > 20*small || large > 300*time.Millisecond); round++ {
		small, large = min(small, startAll(t, 1000)), min(large, startAll(t, 10_000))
	}
	t.Logf("1k: %v, 10k: %v (%.1f times), %d KiB", small, large, float64(large)/float64(small), (m1.TotalAlloc-m0.TotalAlloc)>>10)
	if large > 20*small || large > 300*time.Millisecond {
		t.Errorf("10k endpoints took %v, 1k took %v: more than linear", large, small)
	}
}

// TestMemoryPerEndpoint holds the live heap per endpoint, transport and fakes
// excluded, to 250 bytes at 10,000 endpoints (users.md row 17).
func TestMemoryPerEndpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("measures the heap")
	}
	const n = 10_000
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	b, cc := newTestLB(t, Config{})
	before := live()
	cfg := configOf(clusterOf("c", prio(eps(numbers...))))
	b.Update(cfg)
	for i := range n {
		cc.conn(t, i).to(ready)
	}
	b.flush()
	total := live() - before
	// What the fakes hold: one each, its address and its place in the map.
	fakes := newFakeCC()
	before = live()
	for i := range n {
		a := addr(i).String()
		fakes.conns[a] = &fakeConn{cc: fakes, addr: a}
	}
	total -= live() - before
	runtime.KeepAlive(fakes)
	runtime.KeepAlive(cfg)
	if _, err := b.pick(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes per endpoint", total/n)
	if total/n > 250 {
		t.Errorf("%d bytes per endpoint, want at most 250", total/n)
	}
}

// TestIgnoreEndpointWeights: the option makes ROUND_ROBIN plain round robin
// (A27-CLA-9); without it endpoints are picked by weight (D2).
func TestIgnoreEndpointWeights(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		b, cc := newTestLB(t, Config{IgnoreEndpointWeights: ignore})
		weighted := eps(1, 2)
		weighted[0].Weight = 3
		cfg := configOf(clusterOf("c", prio(weighted)))
		b.Update(cfg)
		cc.conn(t, 1).to(ready)
		cc.conn(t, 2).to(ready)
		b.Update(&picker.Config{Routes: cfg.Routes, Clusters: cfg.Clusters}) // the same clusters
		b.flush()
		counts := map[string]int{}
		for range 400 {
			a, err := b.pick()
			if err != nil {
				t.Fatal(err)
			}
			counts[a]++
		}
		want := 300
		if ignore {
			want = 200
		}
		if got := counts[addr(1).String()]; got != want {
			t.Errorf("IgnoreEndpointWeights %v: %d of 400 picks went to the endpoint of weight 3 of 4, want %d", ignore, got, want)
		}
		if cc.opened != 2 {
			t.Errorf("opened %d connections, want 2", cc.opened)
		}
	}
}

// TestSlowClose: a connection that takes its time to close, as one to a peer that
// is cut off does, holds up neither configurations nor other connections.
func TestSlowClose(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	b.Update(configOf(clusterOf("c", prio(eps(1, 2)))))
	cc.conn(t, 1).to(ready)
	cc.conn(t, 2).to(ready)
	hold := make(chan struct{})
	cc.conn(t, 1).hold = hold
	b.lock()
	b.publish()
	b.unlock()
	b.Update(configOf(clusterOf("c", prio(eps(2, 3)))))
	b.lock()
	b.publish() // with which the connection is closed
	b.unlock()
	cc.conn(t, 2).to(failure)
	cc.conn(t, 3).to(ready)
	b.lock()
	b.publish()
	b.unlock()
	if got, err := b.pick(); got != addr(3).String() {
		t.Errorf("picked %q, %v, want endpoint 3", got, err)
	}
	close(hold)
	b.flush()
	if cc.closed != 1 {
		t.Errorf("%d connections are closed, want 1", cc.closed)
	}
}

// TestUndrain: an endpoint that was drained from the beginning, and so was never
// connected to, is connected to once it is not drained any more (A27-CLA-8), in the
// priority in use and in one that was passed over for it.
func TestUndrain(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	endpoints := func(health picker.Health) [][]picker.Endpoint {
		list := [][]picker.Endpoint{eps(1, 2), eps(3)}
		list[0][1].Health, list[1][0].Health = health, health
		return list
	}
	for _, health := range []picker.Health{picker.Draining, picker.Healthy} {
		list := endpoints(health)
		b.Update(configOf(clusterOf("c", prio(list[0]), prio(list[1]))))
		if health == picker.Draining {
			cc.conn(t, 1).to(failure) // priority 1 has its turn, and nobody
		}
		b.flush()
	}
	cc.conn(t, 2).to(failure)
	cc.conn(t, 3).to(ready)
	b.flush()
	if got, err := b.pick(); got != addr(3).String() {
		t.Errorf("picked %q, %v, want endpoint 3", got, err)
	}
}

// live returns the size of what is in use, in bytes.
func live() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
