// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/picker"
)

// TestExplainChangesNothing: nothing is connected, announced, published, counted or noted
// for an explanation, whatever the policy; IDLE endpoints stay so.
func TestExplainChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]*picker.Cluster{
			"round robin": clusterOf("c", prio(eps(1, 2)), prio(eps(3))),
			"ring":        ring(clusterOf("c", prio(eps(1, 2)))),
			"latency":     latency(clusterOf("c", prio(eps(1, 2)))),
			"pick_first":  firstOf(true, false, prio(eps(1, 2))),
			"custom":      customOf(false, stubA, `{}`, prio(eps(1), eps(2))),
		} {
			c.Leaves[0].Drops = []picker.Drop{{Category: "d", PerMillion: 500000}}
			b, cc := newTestLB(t, Config{})
			b.set(configOf(c))
			for round := range 2 {
				before := b.footprint(cc)
				for range 5 {
					b.explained(t, context.Background())
					b.explained(t, metadatautil.WithHash(context.Background(), 7))
				}
				synctest.Wait()
				if after := b.footprint(cc); after != before {
					t.Errorf("%s, round %d: explaining changed\n%s to\n%s", name, round, before, after)
				}
				if cc.has(1) {
					b.to(cc.conn(t, 1), ready)
				}
				b.flush()
			}
		}
	})
}

// footprint is all that an explanation could change.
func (b *testLB) footprint(cc *fakeCC) string {
	b.lock()
	defer b.unlock()
	cc.mu.Lock()
	defer cc.mu.Unlock()
	text := fmt.Sprintln(cc.opened, cc.closed, cc.announced, cc.state, b.version, len(b.rec.journal.Events()), b.nextPublish, b.rt.Idle(), b.picker.waiting.Load(), b.picker.current.Load())
	for _, a := range slices.Sorted(maps.Keys(cc.conns)) {
		text += fmt.Sprintln(a, cc.conns[a].connects)
	}
	for _, l := range b.live() {
		drops, overload := l.dropCounters()
		text += fmt.Sprintln(l.breaker.InFlight(), drops[0].Load(), overload.Load())
		for _, p := range l.priorities {
			text += fmt.Sprintln(p.phase, p.counts, p.next, p.needsConnect)
			for _, loc := range p.localities {
				text += fmt.Sprintln(loc.load.Snapshot())
			}
		}
	}
	return text
}

// TestExplainDuringUpdates: explanations and updates do not get into each other's way, and
// an explanation that comes in between is whole all the same.
func TestExplainDuringUpdates(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	sets := [][]int{{1, 2, 3}, {3, 4}, {5, 1}, {2}}
	b.set(configOf(clusterOf("c", prio(eps(sets[0]...)))))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			b.set(configOf(clusterOf("c", prio(eps(sets[i%len(sets)]...)))))
			for _, n := range sets[i%len(sets)] {
				if sc := cc.find(n); sc != nil && n%2 == 1 {
					sc.to(ready)
				}
			}
		}
	}()
	for n := 0; ; n++ {
		x := b.explained(t, context.Background())
		c := onlyCluster(t, x)
		sum := c.Waits + c.Fails
		for _, l := range c.Status.Localities() {
			sum += l.Share
		}
		if c.Note == "" && math.Abs(sum-1) > 1e-9 {
			t.Fatalf("shares add up to %v:\n%v", sum, x)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}
