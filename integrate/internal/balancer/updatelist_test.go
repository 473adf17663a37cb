// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/picker"
)

// listEditor changes the endpoints of two localities, of which most stay in the chunks that
// they are in.
type listEditor struct {
	rng  *rand.Rand
	p    picker.Priority
	next int // number of an endpoint that has never been
}

// endpoint returns a new endpoint.
func (l *listEditor) endpoint() picker.Endpoint {
	l.next++
	return picker.Endpoint{Addr: addr(l.next), Weight: 1 + l.rng.Uint32N(5)}
}

// change makes one change: endpoints come and go, move in the list and to the other locality,
// or have another weight or health.
func (l *listEditor) change() {
	from, to := &l.p.Localities[0], &l.p.Localities[1]
	if l.rng.IntN(2) == 0 {
		from, to = to, from
	}
	if from.Endpoints.Len() == 0 {
		from.Endpoints = picker.ListOf(l.endpoint())
	}
	i, k := l.rng.IntN(from.Endpoints.Len()), l.rng.IntN(to.Endpoints.Len()+1)
	if l.rng.IntN(3) == 0 { // one that is the first of a chunk
		i = 0
	}
	e := *from.Endpoints.At(i)
	switch l.rng.IntN(8) {
	case 0:
		e.Weight++
		from.Endpoints = replace(from.Endpoints, i, i+1, e)
	case 1:
		e.Health ^= picker.Draining
		from.Endpoints = replace(from.Endpoints, i, i+1, e)
	case 2:
		from.Endpoints = replace(from.Endpoints, i, i+1, l.endpoint())
	case 3:
		from.Endpoints = replace(from.Endpoints, i, i+1)
	case 4:
		to.Endpoints = replace(to.Endpoints, k, k, l.endpoint())
	case 5:
		from.Endpoints, to.Endpoints = replace(from.Endpoints, i, i+1), replace(to.Endpoints, k, k, e)
	case 6:
		from.Endpoints = replace(from.Endpoints, i, i+1)
		i = l.rng.IntN(from.Endpoints.Len() + 1)
		from.Endpoints = replace(from.Endpoints, i, i, e)
	default: // many at once, so that chunks come and go
		n := min(i+l.rng.IntN(200), from.Endpoints.Len())
		others := make([]picker.Endpoint, l.rng.IntN(200))
		for i := range others {
			others[i] = l.endpoint()
		}
		from.Endpoints = replace(from.Endpoints, i, n, others...)
	}
}

// TestUpdateByChunks: an update that costs only the differences leaves each endpoint of the new
// lists in its place, with its previous connection: the same endpoint, unless it moved to another
// locality.
func TestUpdateByChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2026))
	b, cc := newTestLB(t, Config{})
	l := &listEditor{rng: rng, p: prio(nil, nil)}
	known := [2]map[string]*endpoint{}
	steps := 300
	if testing.Short() {
		steps = 100
	}
	for step := range steps {
		before := map[string]bool{}
		for k, loc := range l.p.Localities {
			known[k] = map[string]*endpoint{}
			for i, e := range loc.Endpoints.All() {
				known[k][e.Addr.String()] = b.clusters["c"].priorities[0].localities[k].endpoints[i]
				before[e.Addr.String()] = true
			}
		}
		next := picker.Priority{Localities: append([]picker.Locality(nil), l.p.Localities...)}
		l.p = next
		for range 1 + rng.IntN(3) {
			l.change()
		}
		cc.opened = 0
		b.set(configOf(clusterOf("c", l.p)))
		b.flush()
		opened := 0
		for k, loc := range l.p.Localities {
			list := b.clusters["c"].priorities[0].localities[k].endpoints
			if len(list) != loc.Endpoints.Len() {
				t.Fatalf("step %d: %d endpoints, want %d", step, len(list), loc.Endpoints.Len())
			}
			for i, cfg := range loc.Endpoints.All() {
				a, e := cfg.Addr.String(), list[i]
				if old := known[k][a]; old != nil && old != e {
					t.Fatalf("step %d: endpoint %s is another one", step, a)
				}
				if e.Draining != (cfg.Health == picker.Draining) || e.loc != b.clusters["c"].priorities[0].localities[k] {
					t.Fatalf("step %d: endpoint %s of locality %d: draining: %v, locality %p", step, a, k, e.Draining, e.loc)
				}
				if !e.Draining && e.conn.sc.(*fakeConn).addr != a {
					t.Fatalf("step %d: endpoint %s is connected to %s", step, a, e.conn.sc.(*fakeConn).addr)
				}
				if !before[a] && !e.Draining {
					opened++
				}
			}
		}
		if cc.duplicate != "" || cc.opened < opened {
			t.Fatalf("step %d: %d connections for %d new endpoints, duplicate %q", step, cc.opened, opened, cc.duplicate)
		}
		b.checkCounts(t, step)
		for range 20 {
			if sc := cc.find(rng.IntN(l.next + 1)); sc != nil {
				b.to(sc, []connectivity.State{ready, failure}[rng.IntN(2)])
			}
		}
	}
}

// checkCounts compares the counts of the only priority with the states of its endpoints.
func (b *testLB) checkCounts(t *testing.T, step int) {
	t.Helper()
	p := b.clusters["c"].priorities[0]
	want := [4]int{}
	for e := range p.endpoints {
		if !e.Draining {
			want[e.Connectivity]++
		}
	}
	if p.counts != want {
		t.Fatalf("step %d: counts are %v, want %v", step, p.counts, want)
	}
}
