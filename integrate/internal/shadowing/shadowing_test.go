// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package shadowing

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// begun returns a Comparer that compares the RPCs of a target.
func begun() *Comparer {
	s := New(nil, false)
	s.Begin("xds:///shadow.test")
	return s
}

// routesTo is a configuration with a route to each cluster, by paths "/name/".
func routesTo(clusters ...string) *picker.Config {
	cfg := &picker.Config{}
	for _, name := range clusters {
		cfg.Routes = append(cfg.Routes, picker.Route{Path: picker.StringMatch{Value: "/" + name + "/"}, Clusters: []picker.WeightedCluster{{Name: name, Weight: 1}}})
		cfg.Clusters = append(cfg.Clusters, &picker.Cluster{Name: name, Leaves: []picker.Leaf{{Name: name + ".leaf"}}})
	}
	return cfg
}

// TestShadowSettles: what stock does by a configuration that comes here a little later, or
// that was here a little earlier, is no difference; what lasts a second is.
func TestShadowSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begun()
		defer s.End()
		expect := func(what string, pending int, differences map[Kind]uint64) {
			t.Helper()
			synctest.Wait()
			if r := s.Report(); r.Pending != pending || !maps.Equal(r.Differences, differences) {
				t.Errorf("%s: %+v, want %d pending, %v", what, r, pending, differences)
			}
		}
		ctx, none := t.Context(), map[Kind]uint64{}
		s.Compare(ctx, "/a/m", "a.leaf")
		expect("before the first configuration", 0, none)
		if s.Report().Calls != 0 {
			t.Error("calls count before the first configuration")
		}
		s.Update(routesTo("a"))
		s.Compare(ctx, "/a/m", "a.leaf")
		s.Compare(ctx, "/a/m", "a")
		expect("the same", 0, none)

		s.Compare(ctx, "/b/m", "b.leaf")
		s.Compare(ctx, "/c/m", "")
		expect("stock is earlier", 1, none)
		s.Update(routesTo("a", "b", "c"))
		expect("the update is here, too", 0, none)
		time.Sleep(2 * time.Second)

		s.Update(routesTo("a"))
		s.Compare(ctx, "/b/m", "b.leaf")
		s.Compare(ctx, "/c/m", "c.leaf")
		s.Compare(ctx, "/a/m", "a.leaf")
		expect("stock is later", 0, none)
		time.Sleep(Settles)
		s.Compare(ctx, "/b/m", "b.leaf")
		s.Compare(ctx, "/a/m", "b.leaf")
		expect("stock is much later", 2, none)
		time.Sleep(Settles / 2)
		s.Compare(ctx, "/a/m", "")
		time.Sleep(Settles / 2)
		expect("two have settled", 1, map[Kind]uint64{NoRoute: 1, Cluster: 1})
		time.Sleep(Settles)
		expect("all have", 0, map[Kind]uint64{NoRoute: 1, Cluster: 1, Route: 1})

		s.Error(errors.New("deleted"))
		s.Compare(ctx, "/a/m", "a.leaf") // the last state serves it
		s.Compare(ctx, "/a/m", "")
		time.Sleep(2 * Settles)
		s.Compare(ctx, "/a/m", "a.leaf")
		time.Sleep(2 * Settles)
		expect("not served", 0, map[Kind]uint64{NoRoute: 1, Cluster: 1, Route: 1, Unserved: 1})

		for range 2 * maxPending {
			s.Compare(ctx, "/a/m", "a.leaf")
		}
		expect("too many", maxPending, map[Kind]uint64{NoRoute: 1, Cluster: 1, Route: 1, Unserved: 1})
	})
}

// TestShadowIsFarAhead: stock may be behind by any number of configurations, if by less than a
// second, and configurations that say nothing new of routes do not count.
func TestShadowIsFarAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begun()
		defer s.End()
		s.Update(routesTo("a"))
		time.Sleep(2 * Settles)
		s.Update(routesTo("b"))
		latest := routesTo("b", "c")
		for range 2 * maxEarlier {
			next := *latest
			s.Update(&next)
			time.Sleep(Settles / 100)
		}
		for _, want := range []uint64{0, 1} {
			s.Compare(t.Context(), "/a/m", "a.leaf")
			time.Sleep(2 * Settles)
			if r := s.Report(); r.Pending != 0 || r.Differences[NoRoute] != want {
				t.Errorf("%+v, want %d RPCs without a route", r, want)
			}
		}
	})
}

// TestShadowShares: shares are judged by the weights, and only where a draw here says what
// a draw of stock's says.
func TestShadowShares(t *testing.T) {
	cfg := routesTo("a", "b")
	cfg.Routes = []picker.Route{{Clusters: []picker.WeightedCluster{{Name: "a", Weight: 1}, {Name: "b", Weight: 3}}}}
	splitOf := func(cfg *picker.Config) *split {
		s, err := newState(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return s.splits[0]
	}
	for _, tt := range []struct {
		every int // one RPC of so many to a
		want  bool
	}{{4, false}, {3, true}, {5, true}, {1, true}} {
		s, differ := splitOf(cfg), false
		for i := range sample {
			leaf := "b.leaf"
			if i%tt.every == 0 {
				leaf = "a.leaf"
			}
			differ = differ || s.count(leaf)
		}
		if differ != tt.want {
			t.Errorf("one of %d: %v, want %v; %v", tt.every, differ, tt.want, s)
		}
	}
	filtered, fraction, twins := *cfg, *cfg, *cfg
	filtered.Filters = []picker.Filter{{Name: "f"}}
	half := uint32(5e5)
	fraction.Routes = append([]picker.Route{cfg.Routes[0]}, picker.Route{Fraction: &half, Clusters: cfg.Routes[0].Clusters})
	twins.Clusters = []*picker.Cluster{{Name: "a", Leaves: []picker.Leaf{{Name: "x"}}}, {Name: "b", Leaves: []picker.Leaf{{Name: "x"}}}}
	for name, cfg := range map[string]*picker.Config{"filters": &filtered, "fractions": &fraction, "a leaf of both": &twins} {
		if splitOf(cfg) != nil {
			t.Errorf("%s: shares are compared", name)
		}
	}
}

// TestShadowAllocates: an RPC without a difference allocates nothing in the comparison.
func TestShadowAllocates(t *testing.T) {
	s := begun()
	defer s.End()
	s.Update(routesTo("a", "b"))
	if n := testing.AllocsPerRun(1000, func() { s.Compare(context.Background(), "/b/m", "b.leaf") }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
