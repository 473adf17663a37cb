// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
)

// growing is a channel whose only priority has endpoints 0 to n-1, which are connecting.
type growing struct {
	*testLB
	t     *testing.T
	conns []*fakeConn
	ready int // the first so many
}

// upTo returns the numbers from first on that are below end.
func upTo(first, end int) (numbers []int) {
	for i := first; i < end; i++ {
		numbers = append(numbers, i)
	}
	return numbers
}

func newGrowing(t *testing.T, n int) *growing {
	b, cc := newTestLB(t, Config{})
	b.Update(configOf(clusterOf("c", prio(eps(upTo(0, n)...)))))
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
			g.conns[g.ready].to(connectivity.Ready)
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
		g.conns[0].to(connectivity.Idle)
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
			c.to(connectivity.Ready)
		}
		g.wantReady("another two, at once", n/2+2, n/2+3)
		kit.Pass(publishPause)
		g.wantReady("another two", n/2+4, n/2+4)
		g.calm()
	})
}
