// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"math/rand/v2"
	"testing"

	"github.com/xdslb/xdslb/picker"
)

// TestNoChurn is the connection invariant over random updates: however endpoints move between
// localities and priorities, or are reordered, reweighted, drained, added or removed, an endpoint
// that is in the old and the new configuration keeps its connection; removed ones are closed, and
// none is opened twice.
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
		end := l.Endpoints.Len()
		l.Endpoints = replace(l.Endpoints, end, end, picker.Endpoint{Addr: addr(n), Weight: 1 + rng.Uint32N(5)})
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
		t.Errorf("gRPC got %d new pickers, want none", cc.announced-announced)
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
