// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestDestinations checks that the result of Match with a random word is one of the
// Destinations, and that each of these is reached by some word, for random routes.
func TestDestinations(t *testing.T) {
	const tables, words = 2000, 400
	rng := rand.New(rand.NewPCG(1, 2))
	clusters := map[string]int32{"a": 0, "b": 1, "c": 2}
	sum := 0
	for range tables {
		routes := randomRoutes(rng)
		for i := range routes {
			routes[i].Clusters = nil
			for _, name := range []string{"a", "b", "c"} {
				if rng.IntN(2) == 0 {
					routes[i].Clusters = append(routes[i].Clusters, WeightedCluster{Name: name, Weight: 1})
				}
			}
			if f := routes[i].Fraction; f != nil && *f > 0 && *f < 1e6 {
				half := uint32(5e5) // so that words find it
				routes[i].Fraction = &half
			}
		}
		table, err := newRouteTable(routes, clusters)
		kit.Must(t, err)
		headers := fakeHeaders{"x": {randomPath(rng)}, "y": {"5"}}
		s := &Snapshot{table: table, routes: routes, env: Env{Header: headers.get}}
		path := randomPath(rng)
		want := map[string]bool{}
		for cluster, outcome := range s.Destinations(bg, path) {
			want[fmt.Sprint(cluster, outcome)] = true
		}
		sum += len(want)
		got := map[string]bool{}
		for range words {
			_, cluster, outcome := s.Match(bg, path, rng.Uint64())
			key := fmt.Sprint(cluster, outcome)
			if got[key] = true; !want[key] {
				t.Fatalf("path %q leads to %s, which is not among %v: %+v", path, key, want, routes)
			}
		}
		if len(got) < len(want) && len(routes) < 6 { // a chance of one in 64 · 3 or more
			t.Fatalf("path %q leads to %v, never to the rest of %v: %+v", path, got, want, routes)
		}
	}
	if sum < tables*5/4 {
		t.Errorf("only %d destinations in %d tables", sum, tables)
	}
}
