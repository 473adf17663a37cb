// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// A flap is one connection of many that is lost and comes back: two changes of
// state and two snapshots.
func BenchmarkFlap(b *testing.B) {
	for _, policy := range []struct {
		name string
		make func(*picker.Cluster) *picker.Cluster
	}{
		{"edf", func(c *picker.Cluster) *picker.Cluster { return c }},
		{"ring_hash", ring},
	} {
		for _, n := range []int{10, 1000, 10_000} {
			b.Run(fmt.Sprintf("policy=%s/n=%d", policy.name, n), func(b *testing.B) {
				lb, cc := newTestLB(b, Config{})
				endpoints := eps(series(0, n)...)
				for i := range endpoints {
					endpoints[i].Weight = uint32(1 + i%100)
				}
				eager := clusterOf("c", prio(endpoints))
				lb.Update(configOf(eager)) // connects them all
				for i := range n {
					cc.conn(b, i).To(ready)
				}
				lb.Update(configOf(policy.make(clusterOf("c", prio(endpoints)))))
				lb.flush()
				sc := cc.conn(b, n/2)
				b.ReportAllocs()
				for b.Loop() {
					sc.To(idle)
					lb.flush()
					sc.Connect() // by a pick, if the policy connects on demand
					sc.To(ready)
					lb.flush()
				}
			})
		}
	}
}

// BenchmarkPick measures Pick and Done of one RPC in a cluster of ten endpoints, for RPCs of a
// plain route, and for RPCs that an interceptor has bound.
func BenchmarkPick(b *testing.B) {
	for _, bound := range []bool{false, true} {
		name := "plain"
		if bound {
			name = "bound"
		}
		b.Run(name, func(b *testing.B) {
			lb, cc := newTestLB(b, Config{})
			cfg := configOf(clusterOf("c", prio(eps(series(0, 10)...))))
			if bound {
				limit := time.Minute
				cfg.Routes[0].Headers = []picker.HeaderMatch{{Name: "x", Kind: picker.HeaderPresent}}
				cfg.Routes[0].Timeout = &limit
			}
			lb.take(cfg)
			for i := range 10 {
				cc.conn(b, i).To(ready)
			}
			lb.flush()
			info := balancer.PickInfo{FullMethodName: "/s/m", Ctx: lb.bind(context.Background())}
			done := balancer.DoneInfo{BytesReceived: true}
			b.ReportAllocs()
			for b.Loop() {
				res, err := lb.picker.Pick(info)
				if err != nil {
					b.Fatal(err)
				}
				res.Done(done)
			}
		})
	}
}

// BenchmarkOneClusterChanges is an update that changes the circuit breaker of one cluster of
// many. publish-ns/op is the part of it that builds and publishes the snapshot, and
// update-min-ns the shortest from the configuration to the end of that.
func BenchmarkOneClusterChanges(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("clusters=%d", n), func(b *testing.B) {
			lb, _, cfg, _ := startClusters(b, n)
			var publishing time.Duration
			shortest := time.Hour
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				cfg = changeOne(cfg, n/2, uint32(100+i%2))
				begin := time.Now()
				lb.Update(cfg)
				lb.lock()
				lb.publish()
				publishing += lb.publishTime
				lb.unlock()
				shortest = min(shortest, time.Since(begin))
			}
			b.ReportMetric(float64(publishing)/float64(b.N), "publish-ns/op")
			b.ReportMetric(float64(shortest), "update-min-ns")
		})
	}
}

// BenchmarkSize measures the cost of a channel of very many endpoints, including that of its fake
// ClientConn: up is a start until all are READY, steady is the remaining heap, churn is one minute
// in which 1 % of the endpoints are replaced, by an update each second. Run it with -benchtime 1x.
func BenchmarkSize(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		for _, subset := range []uint32{0, 100} {
			b.Run(fmt.Sprintf("endpoints=%d/subset=%d", n, subset), func(b *testing.B) {
				for b.Loop() {
					measureSize(b, n, subset)
				}
			})
		}
	}
}

func measureSize(b *testing.B, n int, subset uint32) {
	numbers := series(0, n)
	config := func() *picker.Config {
		c := clusterOf("c", prio(eps(numbers...)))
		c.Leaves[0].Policy.Subset = subset
		return configOf(c)
	}
	lb, cc := newTestLB(b, Config{})
	rise := func() {
		for _, sc := range cc.Open() {
			sc.To(ready)
		}
	}
	first := config()
	heap, goroutines, total, begin := live(), runtime.NumGoroutine(), allocated(), time.Now()
	lb.Update(first)
	rise()
	lb.flush()
	b.ReportMetric(float64(time.Since(begin).Microseconds())/float64(n), "up-µs/endpoint")
	b.ReportMetric(float64(allocated()-total)/float64(n), "up-B/endpoint")
	b.ReportMetric((float64(live())-float64(heap))/float64(n), "steady-B/endpoint")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")

	const minute = 60
	var cpu time.Duration
	var bytes uint64
	next := n
	for s := range minute {
		numbers = slices.Clone(numbers)
		for k := s * n / 100 / minute; k < (s+1)*n/100/minute; k++ {
			numbers[(k*7919)%n] = next
			next++
		}
		cfg := config()
		begin, total := time.Now(), allocated()
		lb.Update(cfg)
		rise()
		lb.flush()
		cpu, bytes = cpu+time.Since(begin), bytes+allocated()-total
	}
	b.ReportMetric(float64(cpu.Milliseconds()), "churn-ms/min")
	b.ReportMetric(float64(bytes)/minute/float64(n), "churn-B/update/endpoint")
	if _, err := lb.pick(); err != nil {
		b.Fatal(err)
	}
}

// The tests of this file measure allocations, not time: a start-up that copies unchanged parts
// allocates the square of its size, on a busy machine too. BenchmarkOneClusterChanges and the
// scoreboard have the times.

// startAll brings n endpoints up from nothing and returns the bytes that it allocated.
func startAll(t testing.TB, n int) uint64 {
	b, cc := newTestLB(t, Config{})
	cfg := configOf(clusterOf("c", prio(eps(series(0, n)...))))
	begin := allocated()
	b.Update(cfg)
	conns := make([]*fakeConn, n)
	for i := range conns {
		conns[i] = cc.conn(t, i)
	}
	for _, sc := range conns {
		sc.To(connecting)
	}
	for _, sc := range conns {
		sc.To(ready)
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
	b, cc := newTestLB(t, Config{})
	before := live()
	cfg := configOf(clusterOf("c", prio(eps(series(0, n)...))))
	b.Update(cfg)
	for i := range n {
		cc.conn(t, i).To(ready)
	}
	b.flush()
	total := live() - before
	// The memory of the fakes: one each, its address and its place in the map.
	fakes := newFakeCC(t.Errorf)
	before = live()
	for i := range n {
		a := addr(i).String()
		_, err := fakes.NewSubConn([]resolver.Address{{Addr: a}}, balancer.NewSubConnOptions{})
		kit.Must(t, err)
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
		cc.conn(t, i).To(connecting)
	}
	for i := range n {
		cc.conn(t, i).To(ready)
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

// growing is a channel whose only priority has endpoints 0 to n-1, which are connecting.
type growing struct {
	*testLB
	t     *testing.T
	conns []*fakeConn
	ready int // the first so many
}

func newGrowing(t *testing.T, n int) *growing {
	b, cc := newTestLB(t, Config{})
	b.Update(configOf(clusterOf("c", prio(eps(series(0, n)...)))))
	g := &growing{testLB: b, t: t}
	for i := range n {
		g.conns = append(g.conns, cc.conn(t, i))
	}
	return g
}

// grow makes endpoints READY, n in each millisecond, until "to" are.
func (g *growing) grow(n, to int) {
	for ; g.ready < to; kit.Pass(time.Millisecond) {
		for end := min(g.ready+n, to); g.ready < end; g.ready++ {
			g.conns[g.ready].To(ready)
		}
	}
}

// wantReady checks how many endpoints picks have.
func (g *growing) wantReady(when string, least, most int) {
	g.t.Helper()
	g.lock()
	defer g.unlock()
	if n := g.clusters["c"].ready; n < least || n > most {
		g.t.Errorf("%s: picks have %d endpoints, want %d to %d", when, n, least, most)
	}
}

// TestGrowthCopiesLittle: 40,000 endpoints that become READY one after the other, in no
// time of the processor's, allocate at most 1000 bytes each. It is ten times that if each millisecond is published.
func TestGrowthCopiesLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 40_000
		g := newGrowing(t, n)
		begin := allocated()
		g.grow(100, n)
		bytes := allocated() - begin
		t.Logf("%d bytes for each endpoint", bytes/n)
		if bytes > 1000*n {
			t.Errorf("%d endpoints coming up allocated %d bytes for each, want at most 1000", n, bytes/n)
		}
		kit.Pass(maxGrowthPause)
		g.wantReady("at last", n, n)
		g.calm()
	})
}

// TestGrowthWaits: the changes that the pause of a growing priority applies to.
func TestGrowthWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, soon = 40_000, 2 * publishPause
		g := newGrowing(t, n)
		g.grow(n/4, n/4)
		kit.Pass(soon)
		g.wantReady("first of all", n/4, n/4)
		g.grow(100, n/4+100)
		kit.Pass(soon)
		g.wantReady("a few more", n/4, n/4)
		kit.Pass(n*growthPause - maxPublishPause)
		g.wantReady("a few more, later", n/4+100, n/4+100)
		g.grow(n/4, n/2)
		kit.Pass(soon)
		g.wantReady("many more", n/2, n/2)
		g.grow(100, n/2+100)
		g.conns[0].To(idle)
		kit.Pass(soon)
		g.wantReady("one is lost", n/2+99, n/2+99)
		g.calm()
	})
}

// TestGrowthOfFew: a priority that costs little to copy is published as always.
func TestGrowthOfFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		g := newGrowing(t, n)
		g.grow(n/2, n/2)
		g.grow(2, n/2+2)
		g.wantReady("two more", n/2+1, n/2+2)
		for _, c := range g.conns[n/2+2 : n/2+4] {
			c.To(ready)
		}
		g.wantReady("another two, at once", n/2+2, n/2+3)
		kit.Pass(publishPause)
		g.wantReady("another two", n/2+4, n/2+4)
		g.calm()
	})
}
