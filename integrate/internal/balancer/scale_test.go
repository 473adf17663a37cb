// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/picker"
)

// The tests of this file measure allocations, not time: a start-up that copies unchanged parts
// allocates the square of its size, on a busy machine too. BenchmarkOneClusterChanges and the
// scoreboard have the times.

// startAll brings n endpoints up from nothing and returns the bytes that it allocated.
func startAll(t testing.TB, n int) uint64 {
	b, cc := newTestLB(t, Config{})
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	cfg := configOf(clusterOf("c", prio(eps(numbers...))))
	begin := allocated()
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
	bytes := allocated() - begin
	if _, err := b.pick(); err != nil {
		t.Fatalf("Pick() after start-up: %v", err)
	}
	return bytes
}

// TestStartUpIsLinear: 10,000 endpoints going CONNECTING and READY allocate no more than fifteen
// times as much as 1,000, and at most 200 MiB; grpc-go's own xDS needs 26.5 GiB.
func TestStartUpIsLinear(t *testing.T) {
	small, large := startAll(t, 1000), startAll(t, 10_000)
	t.Logf("1k: %d KiB, 10k: %d KiB", small>>10, large>>10)
	if large > 200<<20 {
		t.Errorf("10k endpoints coming up allocated %d MiB, want at most 200", large>>20)
	}
	if large > 15*small {
		t.Errorf("10k endpoints allocated %d bytes, 1k allocated %d: more than linear", large, small)
	}
}

// TestMemoryPerEndpoint limits the live heap per endpoint, transport and fakes excluded, to 230
// bytes at 10,000 endpoints. Objects of other tests may be freed during one of the three
// measurements, which is then not the median.
func TestMemoryPerEndpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("measures the heap")
	}
	const n = 10_000
	var sizes []int64
	for range 3 {
		sizes = append(sizes, heldBy(t, n)/n)
	}
	t.Logf("%d bytes per endpoint", sizes)
	slices.Sort(sizes)
	if least := int64(unsafe.Sizeof(endpoint{})); sizes[1] > 230 || sizes[1] < least {
		t.Errorf("%d bytes per endpoint, want %d to 230", sizes[1], least)
	}
}

// heldBy returns by how many bytes the live heap grows with n endpoints.
func heldBy(t *testing.T, n int) int64 {
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
	// The memory of the fakes: one each, its address and its place in the map.
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
	return total
}

// live returns the size of the live heap in bytes: once a collection finds next to nothing.
func live() int64 {
	var m runtime.MemStats
	for last := uint64(math.MaxUint64); ; last = m.HeapAlloc {
		runtime.GC()
		if runtime.ReadMemStats(&m); last < m.HeapAlloc+4096 {
			return int64(m.HeapAlloc)
		}
	}
}

// allocated returns how many bytes the process has allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// startClusters brings n clusters of one endpoint each up, one after the other, and
// returns the bytes that it allocated, too.
func startClusters(t testing.TB, n int) (*testLB, *fakeCC, *picker.Config, uint64) {
	b, cc := newTestLB(t, Config{})
	clusters := make([]*picker.Cluster, n)
	for i := range clusters {
		clusters[i] = clusterOf(fmt.Sprint("c", i), prio(eps(i)))
	}
	cfg := configOf(clusters...)
	begin := allocated()
	b.Update(cfg)
	for i := range n {
		cc.conn(t, i).to(connecting)
	}
	for i := range n {
		cc.conn(t, i).to(connectivity.Ready)
	}
	b.flush()
	return b, cc, cfg, allocated() - begin
}

// TestClustersStartUpIsLinear: 4000 clusters coming up one after the other allocate no more than
// five times as much as 1000, though each is published by itself.
func TestClustersStartUpIsLinear(t *testing.T) {
	_, _, _, small := startClusters(t, 1000)
	_, _, _, large := startClusters(t, 4000)
	t.Logf("1000: %d KiB, 4000: %d KiB", small>>10, large>>10)
	if large > 5*small {
		t.Errorf("4000 clusters allocated %d bytes, 1000 allocated %d: more than linear", large, small)
	}
}
