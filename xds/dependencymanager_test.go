// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestRouteConfigNameChange checks that the old routes stay in use until the
// new RouteConfiguration, and all that it needs, is there (T-WATCH-2), and that
// the clusters in use are followed meanwhile.
func TestRouteConfigNameChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := serving(t, Options{})
		cp.serve(listenerTo("svc", "r2"))
		cp.asked(rds, "r2", "svc")
		cp.serve(endpointsAt("svc", 2))
		w.serves(t, "svc", "svc 2", "updates must go on while r2 is missing")
		cp.serve(routesTo("r2", "svc", "new"))
		cp.serve(clusterTo("new", "new"))
		if n := len(w.must(t).Clusters); n != 1 {
			t.Errorf("%d clusters before the endpoints of the new one are there", n)
		}
		cp.serve(endpointsAt("new", 3))
		w.serves(t, "new", "new 3")
		cp.asked(rds, "r2") // the old one is not watched any more
	})
}

// TestRouteConfigMissing is TestRouteConfigNameChange with an end that is an
// error, for lack of the new RouteConfiguration: final if the server does not
// have it, and no reason to give up anything if the server is gone (A57).
func TestRouteConfigMissing(t *testing.T) {
	for _, outage := range []bool{false, true} {
		t.Run(fmt.Sprint("outage=", outage), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, cp, w := serving(t, Options{})
				cp.serve(listenerTo("svc", "r2"))
				if outage {
					cp.refuse(errRefused)
				}
				advance(time.Minute)
				if outage {
					if w.must(t); w.got().errs != 0 {
						t.Errorf("error %v", w.got().err)
					}
					return
				}
				w.fails(t, `RouteConfiguration resource "r2" not found`)
				cp.serve(routesTo("r2", "svc"))
				w.must(t)
			})
		})
	}
}

// TestServiceNameChange checks that the old endpoints stay in use until the new
// ones are there (T-WATCH-2), or known not to exist.
func TestServiceNameChange(t *testing.T) {
	for _, arrives := range []bool{true, false} {
		t.Run(fmt.Sprint("arrives=", arrives), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, cp, w := serving(t, Options{})
				cp.serve(clusterTo("svc", "e2"))
				cp.asked(eds, "e2", "svc")
				cp.serve(endpointsAt("svc", 5))
				if c := w.cluster(t, "svc"); ports(c) != "svc 5" || c.Leaves[0].Service != "svc" {
					t.Errorf("endpoints = %q of service %q, want the old service to be followed", ports(c), c.Leaves[0].Service)
				}
				if arrives {
					cp.serve(endpointsAt("e2", 6))
					if c := w.cluster(t, "svc"); ports(c) != "svc 6" || c.Leaves[0].Service != "e2" {
						t.Errorf("endpoints = %q of service %q, want the new ones", ports(c), c.Leaves[0].Service)
					}
				} else {
					advance(16 * time.Second)
					leaf := w.cluster(t, "svc").Leaves[0]
					if len(leaf.Priorities) != 0 || leaf.ResolutionNote == nil || !strings.Contains(leaf.ResolutionNote.Error(), `ClusterLoadAssignment resource "e2" not found`) {
						t.Errorf("leaf = %+v, want none, and a note with the reason", leaf)
					}
				}
				cp.asked(eds, "e2")
			})
		})
	}
}

// TestChangeDuringOutage checks that a change of clusters that lacks a part, for
// lack of a control plane, is not made (T-WATCH-2, A57).
func TestChangeDuringOutage(t *testing.T) {
	for _, change := range []proto.Message{clusterTo("c", "e2"), aggregateOf("c", "new"), aggregateOf("c", "c2", "new"), routesTo("r", "c", "new")} {
		typ, _ := nameOf(change)
		t.Run(fmt.Sprint(typ), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, cp := only(t, Options{})
				w := h.watch("svc")
				cp.serve(listenerTo("svc", "r"), routesTo("r", "c"), clusterTo("c", "e"), clusterTo("c2", "e"), endpointsAt("e", 1))
				before := w.must(t)
				// The resources that the change needs do not arrive before the outage.
				cp.serve(change)
				cp.refuse(errRefused)
				advance(time.Hour)
				if w.must(t) != before || w.got().errs != 0 {
					t.Errorf("config = %+v, error = %v; want no change", w.got().config, w.got().err)
				}
				cp.serve(clusterTo("new", "e2"), endpointsAt("e2", 2))
				cp.refuse(nil)
				advance(5 * time.Minute)
				if w.must(t) == before {
					t.Error("the change was not made after the outage")
				}
			})
		})
	}
}

// TestClusterIsolation checks that an error of a cluster is confined to that cluster (T-WATCH-4),
// and that unchanged clusters remain the same value.
func TestClusterIsolation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		w := h.watch("svc")
		cp.serve(listenerTo("svc", "r"), routesTo("r", "good", "gone", "empty", "bad"),
			clusterTo("good", "good"), endpointsAt("good", 1), clusterTo("empty", "empty"), badCluster("bad"))
		if w.got().updates+w.got().errs != 0 {
			t.Fatal("the watcher was called before all resources were known")
		}
		advance(16 * time.Second)
		first := w.must(t)
		good := w.cluster(t, "good")
		if ports(good) != "good 1" || good.Err != nil || good.Leaves[0].ResolutionNote != nil {
			t.Errorf("cluster good = %+v", good)
		}
		if err := w.cluster(t, "gone").Err; err == nil || !strings.Contains(err.Error(), `Cluster resource "gone" not found`) {
			t.Errorf("error of gone = %v", err)
		}
		if err := w.cluster(t, "bad").Err; err == nil || !strings.Contains(err.Error(), "bad") {
			t.Errorf("error of bad = %v", err)
		}
		if c := w.cluster(t, "empty"); c.Err != nil || len(c.Leaves) != 1 || c.Leaves[0].ResolutionNote == nil {
			t.Errorf("cluster empty = %+v, want a leaf without endpoints and with a note", c)
		}
		cp.serve(clusterTo("gone", "good"))
		second := w.must(t)
		for i, c := range second.Clusters {
			if same := c == first.Clusters[i]; same != (c.Name != "gone") {
				t.Errorf("cluster %q: same value = %v", c.Name, same)
			}
		}
		if &first.Routes[0] != &second.Routes[0] {
			t.Error("the routes did not change, and are other values")
		}
	})
}

// TestOtherVirtualHost checks that a change of routes that are somebody else's
// is no news.
func TestOtherVirtualHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := serving(t, Options{})
		rc := routesTo("svc", "svc")
		rc.VirtualHosts = append(rc.VirtualHosts, routesTo("", "other").VirtualHosts[0])
		rc.VirtualHosts[1].Name, rc.VirtualHosts[1].Domains = "other", []string{"other"}
		cp.serve(rc)
		if w.must(t); w.got().updates != 1 {
			t.Errorf("%d updates, want 1", w.got().updates)
		}
		// But this is news.
		cp.serve(routesTo("svc", "svc", "svc"))
		if n := len(w.must(t).Routes); n != 2 || w.got().updates != 2 {
			t.Errorf("%d routes after %d updates", n, w.got().updates)
		}
	})
}

// TestUnservable checks the errors that concern the target as a whole (A74,
// A27-RES-8), and that each is over with the next good version.
func TestUnservable(t *testing.T) {
	socket := &listenerv3.Listener{Name: "svc", Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "0.0.0.0", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 1}}}}}
	bubble(t, func(t *testing.T) {
		_, cp, w := serving(t, Options{})
		cp.serve(socket)
		w.fails(t, "socket listener", `"svc"`, "node-1")
		cp.serve(listenerTo("svc", "svc"))
		w.must(t)
		rc := routesTo("svc", "svc")
		rc.VirtualHosts[0].Domains = []string{"other"}
		cp.serve(rc)
		w.fails(t, "no virtual host", `"svc"`, "node-1")
		cp.serve(routesTo("svc", "svc"))
		w.must(t)
	})
}

// TestInlineRoutes checks that routes in the Listener need no RDS (A27-RES-4).
func TestInlineRoutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		cp.serve(inlineListener("svc", routesTo("", "c")), clusterTo("c", "c"), endpointsAt("c", 1))
		w := h.watch("svc")
		w.must(t)
		if n := cp.count(rds); n != 0 {
			t.Errorf("%d RDS requests", n)
		}
	})
}

// TestAggregate follows an aggregate cluster through changes (A37, A75): leaves
// in order, each with its own settings, a child that is missing passed over, a
// child that is not known yet waited for.
func TestAggregate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		a := clusterTo("a", "a")
		a.CircuitBreakers = &clusterv3.CircuitBreakers{}
		cp.serve(listenerTo("svc", "r"), routesTo("r", "top"), aggregateOf("top", "mid", "b"), aggregateOf("mid", "a", "gone"),
			a, clusterTo("b", "b"), endpointsAt("a", 1), endpointsAt("b", 2))
		w := h.watch("svc")
		synctest.Wait()
		if w.got().updates != 0 {
			t.Fatal("an update before all resources are known")
		}
		advance(16 * time.Second)
		w.serves(t, "top", "a 1 | b 2")
		before := w.cluster(t, "top")
		cp.serve(aggregateOf("top", "b", "new", "mid"))
		if w.cluster(t, "top") != before {
			t.Error("the aggregate changed before its new child was known")
		}
		cp.serve(endpointsAt("a", 3)) // resources in use are followed meanwhile
		w.serves(t, "top", "a 3 | b 2")
		cp.serve(clusterTo("new", "b"))
		w.serves(t, "top", "b 2 | new 2 | a 3")
		cp.serve(aggregateOf("top", "gone"))
		if err := w.cluster(t, "top").Err; err == nil || !strings.Contains(err.Error(), "gone") {
			t.Errorf("error = %v", err)
		}
		cp.asked(cds, "gone", "top")
	})
}

// TestLoadReporting checks that a leaf names the server that sent its cluster
// (A27-CL-5, A47).
func TestLoadReporting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := serving(t, Options{})
		if server := w.cluster(t, "svc").Leaves[0].Load.Server; server != "" {
			t.Errorf("server = %q, want none (A27-CL-6)", server)
		}
		cp.serve(xdstest.Cluster("svc", "svc", testplane.LoadReports()))
		key := w.cluster(t, "svc").Leaves[0].Load.Server
		if want := h.c.cfg.Servers[0].Key(); key != want {
			t.Errorf("server = %q, want %q", key, want)
		}
		conn, release, err := h.c.Conn(key)
		if err != nil || conn == nil {
			t.Fatalf("Conn = %v, %v", conn, err)
		}
		if len(h.c.pool.channels) != 1 {
			t.Errorf("%d channels, want load reports to share that of ADS", len(h.c.pool.channels))
		}
		release()
		release() // does no harm
		if _, _, err := h.c.Conn("nobody"); err == nil {
			t.Error("a channel to a server that the bootstrap does not have")
		}
		cp.serve(endpointsAt("svc", 9))
		w.must(t)
	})
}

// graph is a set of Cluster entries, written as "a: b c" for an aggregate, "a"
// for a leaf, "a!" for one that is missing, "a?" for one that is not known yet, "a~" for one of other
// servers, which cannot be reached, and "a^" for one of the same servers, which cannot be reached.
func graph(lines ...string) func(string) *entry {
	entries := map[string]*entry{}
	here, there := &authority{}, &lookups{}
	for _, line := range lines {
		name, children, aggregate := strings.Cut(line, ":")
		bare := strings.TrimRight(name, "!?~^")
		e := &entry{key: entryKey{cds, bare}, source: here}
		switch {
		case aggregate:
			e.value = &resource.Cluster{Name: bare, Kind: resource.ClusterAggregate, Children: strings.Fields(children)}
		case strings.HasSuffix(name, "!"):
			e.err = errors.New(bare + " is missing")
		case strings.HasSuffix(name, "~"):
			e.err, e.transient, e.source = errors.New(bare+" is out of reach"), true, there
		case strings.HasSuffix(name, "^"):
			e.err, e.transient = errors.New(bare+" is out of reach"), true
		case !strings.HasSuffix(name, "?"):
			e.value = &resource.Cluster{Name: bare}
		}
		entries[bare] = e
	}
	return func(name string) *entry { return entries[name] }
}

// chain returns an aggregate of an aggregate and so on, n clusters in all, the
// last of which is the leaf "l".
func chain(n int) []string {
	lines := []string{"l"}
	for i := n - 2; i >= 0; i-- {
		child := fmt.Sprint("c", i+1)
		if i == n-2 {
			child = "l"
		}
		lines = append(lines, fmt.Sprintf("c%d: %s", i, child))
	}
	return lines
}

// TestFlatten is about the shape of aggregates (A37, A74, T-WATCH-5).
func TestFlatten(t *testing.T) {
	for _, tt := range []struct {
		name  string
		graph []string
		root  string
		want  string
		ready readiness
		err   string
	}{
		{"leaf", []string{"a"}, "a", "[a]", ready, ""},
		{"A37's example", []string{"A: B C", "B", "C: D E", "D", "E"}, "A", "[B D E]", ready, ""},
		{"twice, first place counts", []string{"a: x b", "b: y x z", "x", "y", "z"}, "a", "[x y z]", ready, ""},
		{"diamond", []string{"a: b c", "b: d", "c: d e", "d: x", "e", "x"}, "a", "[x e]", ready, ""},
		{"cycle", []string{"a: b x", "b: a y", "x", "y"}, "a", "[y x]", ready, ""},
		{"nothing but a cycle", []string{"a: b", "b: a"}, "a", "[]", ready, "no leaf clusters"},
		{"its own child", []string{"a: a"}, "a", "[]", ready, "no leaf clusters"},
		{"16 deep", chain(16), "c0", "[l]", ready, ""},
		{"17 deep", chain(17), "c0", "[]", ready, "max depth (16)"},
		{"missing", []string{"a!"}, "a", "[]", ready, "a is missing"},
		{"children missing", []string{"a: b c", "b!", "c!"}, "a", "[]", ready, "b is missing"},
		{"child passed over", []string{"a: b c", "b!", "c"}, "a", "[c]", ready, ""},
		{"unknown", []string{"a?"}, "a", "[]", waiting, ""},
		{"child unknown", []string{"a: b c", "b?", "c"}, "a", "[c]", waiting, ""},
		{"child of another authority out of reach", []string{"a: b c", "b~", "c"}, "a", "[c]", unavailable, ""},
		{"child out of reach", []string{"a: b c", "b^", "c"}, "a", "[c]", interrupted, ""},
		{"out of reach", []string{"a~"}, "a", "[]", unavailable, "a is out of reach"},
	} {
		leaves, _, r, err := flatten(tt.root, maxLeaves, graph(tt.graph...))
		if fmt.Sprint(leaves) != tt.want || r != tt.ready || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: flatten = %v, %v, %v; want %v, %v, %q", tt.name, leaves, r, err, tt.want, tt.ready, tt.err)
		}
	}
}

// TestFlattenOracle compares with the definition: all paths, depth first, and
// of each leaf the first.
func TestFlattenOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := 2 + rng.IntN(8)
		var lines []string
		children := map[string][]string{}
		for i := range n {
			name := fmt.Sprint("n", i)
			if rng.IntN(2) == 0 {
				lines = append(lines, name)
				continue
			}
			for range rng.IntN(4) {
				children[name] = append(children[name], fmt.Sprint("n", rng.IntN(n)))
			}
			lines = append(lines, name+": "+strings.Join(children[name], " "))
			if children[name] == nil {
				children[name] = []string{}
			}
		}
		var want []string
		var paths func(path []string)
		paths = func(path []string) {
			last := path[len(path)-1]
			if slices.Contains(path[:len(path)-1], last) {
				return // a cycle
			}
			if children[last] == nil && !slices.Contains(want, last) {
				want = append(want, last)
			}
			for _, c := range children[last] {
				paths(append(slices.Clone(path), c))
			}
		}
		paths([]string{"n0"})
		got, _, r, err := flatten("n0", maxLeaves, graph(lines...))
		if !slices.Equal(got, want) || r != ready || (err != nil) != (len(want) == 0) {
			t.Fatalf("flatten = %v, %v, %v; want %v\n%s", got, r, err, want, strings.Join(lines, "\n"))
		}
	}
}

// TestFlattenCost checks that a graph with very many paths is walked in no time.
func TestFlattenCost(t *testing.T) {
	lines := []string{"l"}
	for i := range 14 {
		child := fmt.Sprint("n", i-1)
		if i == 0 {
			child = "l"
		}
		lines = append(lines, fmt.Sprintf("n%d:%s", i, strings.Repeat(" "+child, 100)))
	}
	lookups := 0
	lookup := graph(lines...)
	leaves, _, _, _ := flatten("n13", maxLeaves, func(name string) *entry { lookups++; return lookup(name) })
	if len(leaves) != 1 || lookups > 16 {
		t.Errorf("%d leaves after %d look-ups, want 1 and no more than 16", len(leaves), lookups)
	}
}
