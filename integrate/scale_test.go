// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/cputime"
	"github.com/xdslb/xdslb/picker"
)

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
// more than twelve times what 1,000 do, and allocate at most 200 MiB;
// grpc-go's own xDS needs 30 s and 26.5 GiB.
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
// excluded, to 250 bytes at 10,000 endpoints.
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

// live returns the size of what is in use, in bytes.
func live() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// startClusters brings n clusters of one endpoint each up, one after the other, and
// returns the processor time that it took.
func startClusters(t testing.TB, n int) (*testLB, *fakeCC, *picker.Config, time.Duration) {
	b, cc := newTestLB(t, Config{})
	clusters := make([]*picker.Cluster, n)
	for i := range clusters {
		clusters[i] = clusterOf(fmt.Sprint("c", i), prio(eps(i)))
	}
	cfg := configOf(clusters...)
	begin := cputime.Process()
	b.Update(cfg)
	for i := range n {
		cc.conn(t, i).to(connecting)
	}
	for i := range n {
		cc.conn(t, i).to(connectivity.Ready)
	}
	b.flush()
	return b, cc, cfg, cputime.Process() - begin
}

// TestClustersStartUpIsLinear: each cluster is published as soon as it is READY, so what a
// publication costs must not grow with the clusters that have not changed.
func TestClustersStartUpIsLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	few, many := time.Hour, time.Hour
	for round := 0; round < 3 || round < 20 && many > 8*few; round++ {
		_, _, _, took := startClusters(t, 1000)
		few = min(few, took)
		_, _, _, took = startClusters(t, 4000)
		many = min(many, took)
	}
	t.Logf("1000 clusters: %v, 4000: %v", few, many)
	if many > 8*few {
		t.Errorf("4000 clusters took %v, 1000 took %v: more than linear", many, few)
	}
}
