// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// two returns a client with a chain of two servers.
func two(t *testing.T) (h *harness, first, second *fake) {
	t.Helper()
	h = newHarness(t, Options{}, []string{serverDoc("first"), serverDoc("second")}, "")
	return h, h.servers["first"], h.servers["second"]
}

// TestFallback checks when a server is left for the next in the chain, and when
// that one is left again (A71, T-XDS-16).
func TestFallback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, first, second := two(t)
		first.serve(targetOf("svc", 1)...)
		second.serve(append(targetOf("svc", 2), targetOf("new", 3)...)...)
		w := h.watch("svc")
		w.must(t)
		first.refuse(errRefused)
		advance(10 * time.Minute)
		if n := second.opened(); n != 0 {
			t.Errorf("%d streams to the second server, and nothing is missing", n)
		}
		// A resource that is not in the cache: now everything comes from the
		// second server.
		late := h.watch("new")
		late.serves(t, "new", "new 3")
		w.serves(t, "svc", "svc 2")
		if w.got().errs+late.got().errs != 0 {
			t.Errorf("errors %v, %v", w.got().err, late.got().err)
		}
		second.asked(lds, "new", "svc")
		// The first server is back.
		first.serve(targetOf("new", 4)...)
		first.refuse(nil)
		advance(10 * time.Minute)
		if a, b := ports(w.cluster(t, "svc")), ports(late.cluster(t, "new")); a != "svc 1" || b != "new 4" {
			t.Errorf("endpoints = %q and %q, want those of the first server", a, b)
		}
		if second.current() != nil {
			t.Error("the second server still has a stream")
		}
		if v := first.must().Requests("")[0].VersionInfo; v != "" {
			t.Errorf("version %q of the second server's resource is sent to the first server", v)
		}
		if n := second.opened(); n != 1 {
			t.Errorf("%d streams to the second server, want 1", n)
		}
	})
}

// TestFallbackFails checks that an error comes when the last server of the
// chain fails, not before, and names them all.
func TestFallbackFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, first, second := two(t)
		first.refuse(errRefused)
		second.Hang()
		w := h.watch("svc")
		advance(500 * time.Millisecond)
		if w.got().errs != 0 {
			t.Errorf("error %v while the second server may still answer", w.got().err)
		}
		advance(time.Second)
		w.fails(t, "passthrough:///first", "connection refused", "passthrough:///second", "not connected after 1s", "node-1", `"svc"`)
	})
}

// TestFallbackFailsLast checks that there is no error while a server of the chain
// may still answer, be it the first, which is back and has not said anything yet
// (A71).
func TestFallbackFailsLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, Options{ResourceTimeout: time.Hour}, []string{serverDoc("first"), serverDoc("second")}, "")
		first, second := h.servers["first"], h.servers["second"]
		first.refuse(errRefused)
		w := h.watch("svc")
		second.must()
		first.refuse(nil)
		advance(10 * time.Minute)
		first.must()
		second.refuse(errRefused)
		late := h.watch("late")
		advance(10 * time.Minute)
		if w.got().errs+late.got().errs != 0 {
			t.Errorf("errors %v, %v", w.got().err, late.got().err)
		}
		first.refuse(errRefused)
		for _, w := range []*recorder{w, late} {
			w.fails(t, "passthrough:///first", "passthrough:///second", "connection refused")
		}
	})
}

// TestFallbackShared checks that a server which stays in use for another authority receives the
// unsubscriptions when the first server comes back, so that it sends the resources again when they
// are needed again (A71, T-XDS-4).
func TestFallbackShared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const routes = "xdstp://other/envoy.config.route.v3.RouteConfiguration/r"
		h := newHarness(t, Options{Linger: -1}, []string{serverDoc("first"), serverDoc("second")},
			`, "authorities": {"other": {"xds_servers": [`+serverDoc("second")+`]}}`)
		first, second := h.servers["first"], h.servers["second"]
		first.serve(append(targetOf("svc", 1)[1:], listenerTo("svc", "svc"), listenerTo("main", routes))...)
		second.serve(append(targetOf("svc", 2), listenerTo("main", routes), routesTo(routes, "svc"))...)
		h.watch("main").must(t)
		first.refuse(errRefused)
		w := h.watch("svc")
		advance(10 * time.Minute)
		w.serves(t, "svc", "svc 2")
		first.refuse(nil)
		advance(10 * time.Minute)
		w.serves(t, "svc", "svc 1")
		second.asked(rds, routes)
		w.cancel()
		advance(10 * time.Minute)
		first.refuse(errRefused)
		advance(10 * time.Minute)
		again := h.watch("svc")
		advance(20 * time.Second)
		if again.must(t); again.got().errs != 0 {
			t.Errorf("error %v", again.got().err)
		}
	})
}

// TestFallbackOfNothing checks that a resource which the first server does not have counts as known
// (A71).
func TestFallbackOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, first, second := two(t)
		w := h.watch("svc")
		advance(16 * time.Second)
		w.fails(t, "not found")
		first.refuse(errRefused)
		advance(time.Minute)
		if n := second.opened(); n != 0 {
			t.Errorf("%d streams to the second server", n)
		}
	})
}

// TestFallbackKeepsData checks that data of the second server stays when the
// first is back and does not have it yet.
func TestFallbackKeepsData(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, first, second := two(t)
		first.refuse(errRefused)
		second.serve(targetOf("svc", 2)...)
		w := h.watch("svc")
		w.must(t)
		first.serve(listenerTo("svc", "svc"))
		first.refuse(nil)
		advance(5 * time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 2" || second.current() != nil {
			t.Errorf("endpoints = %q, stream to the second server: %v", got, second.current() != nil)
		}
		first.serve(targetOf("svc", 1)...)
		w.serves(t, "svc", "svc 1")
	})
}

// TestFallbackOnlyThere checks resources that only the second server has, once the first server is
// back and the second is no longer used: a Listener counts as deleted when its timer expires, and
// other resources stay in use with a resolution note (A71, T-XDS-6). Neither is kept without an
// error.
func TestFallbackOnlyThere(t *testing.T) {
	for _, drops := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			h := newHarness(t, Options{TargetOptions: TargetOptions{DropDeleted: drops}}, []string{serverDoc("first"), serverDoc("second")}, "")
			first, second := h.servers["first"], h.servers["second"]
			first.refuse(errRefused)
			second.serve(append(targetOf("svc", 2), targetOf("only", 3)...)...)
			svc, only := h.watch("svc"), h.watch("only")
			svc.must(t)
			only.must(t)
			first.serve(targetOf("svc", 1)[:3]...) // without endpoints
			first.refuse(nil)
			advance(5 * time.Minute)
			note := svc.cluster(t, "svc").Leaves[0].ResolutionNote
			if got := ports(svc.cluster(t, "svc")); got != "svc 2" || note == nil {
				t.Errorf("endpoints = %q, note %v; want those of the second server, with a note", got, note)
			} else if text := note.Error(); !strings.Contains(text, "passthrough:///first") || !strings.Contains(text, "passthrough:///second") {
				t.Errorf("note %v, want one that names both servers", note)
			}
			if s := statusOf(h.c, lds, "only"); s.State != DoesNotExist || s.Err == nil {
				t.Errorf("the listener that the first server does not have: %+v", s)
			}
			if drops {
				only.fails(t, `"only"`, "not found", "passthrough:///first", "passthrough:///second")
			} else if got := ports(only.cluster(t, "only")); got != "only 3" {
				t.Errorf("endpoints = %q", got)
			}
		})
	}
}

// inVariants runs a test of two servers in a chain in each of the variants of ADS. They have
// an hour to send a resource.
func inVariants(t *testing.T, f func(t *testing.T, h *harness, first, second *fake)) {
	for name, feature := range map[string]string{"sotw": "", "delta": deltaFeature} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHarness(t, Options{ResourceTimeout: time.Hour}, []string{serverDoc("first", feature), serverDoc("second", feature)}, "")
				f(t, h, h.servers["first"], h.servers["second"])
			})
		})
	}
}

// TestFallbackClaimsNothing checks the case that the first server is connected again before the
// second, which is in use by then, has sent anything: the client does not report to the first
// server the versions that it has of that server's resources. Otherwise the first server would not
// send them again, and the next resources of the second would stay (A71).
func TestFallbackClaimsNothing(t *testing.T) {
	inVariants(t, func(t *testing.T, h *harness, first, second *fake) {
		first.serve(targetOf("svc", 1)...)
		svc := h.watch("svc")
		svc.must(t)
		first.refuse(errRefused)
		advance(time.Minute)
		late := h.watch("new")
		first.refuse(nil)
		advance(5 * time.Minute)
		if first.opened() != 2 || second.opened() != 1 {
			t.Fatalf("%d and %d streams, want 2 and 1", first.opened(), second.opened())
		}
		second.serve(append(targetOf("svc", 2), targetOf("new", 3)...)...)
		first.serve(targetOf("new", 4)...)
		advance(5 * time.Second)
		if a, b := ports(svc.cluster(t, "svc")), ports(late.cluster(t, "new")); a != "svc 1" || b != "new 4" {
			t.Errorf("endpoints = %q and %q, want those of the first server", a, b)
		}
		if d := first.delta(); d != nil {
			// The first request of all: by the others, the server may have shown that it is back.
			if v := d.Requests(lds.URL())[0].InitialResourceVersions; len(v) > 0 {
				t.Errorf("versions %v are claimed", v)
			}
		} else if v := first.must().Requests(lds.URL())[0].VersionInfo; v != "" {
			t.Errorf("version %q is claimed", v)
		}
	})
}

// TestFallbackOnlyThereAnyMore checks a resource that the first server has sent once and does not
// have any more when it is back: the second server's version is not kept without an error (A71).
func TestFallbackOnlyThereAnyMore(t *testing.T) {
	inVariants(t, func(t *testing.T, h *harness, first, second *fake) {
		first.serve(targetOf("svc", 1)...)
		second.serve(append(targetOf("svc", 2), listenerTo("new", "svc"))...)
		svc := h.watch("svc")
		svc.must(t)
		first.refuse(errRefused)
		advance(time.Minute)
		h.watch("new").must(t)
		first.Remove(eds.URL(), "svc")
		first.refuse(nil)
		advance(30 * time.Minute)
		first.hangUp(nil) // and the timer starts again
		advance(2 * time.Hour)
		cluster := svc.cluster(t, "svc")
		if got, note := ports(cluster), cluster.Leaves[0].ResolutionNote; got != "svc 2" || note == nil {
			t.Errorf("endpoints = %q, note %v; want those of the second server, with a note", got, note)
		}
	})
}

// TestLoadReportsFollow checks that load is reported to the server that the
// cluster comes from, also when another takes over and sends the same bytes
// (T-XDS-16, A47).
func TestLoadReportsFollow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, first, second := two(t)
		resources := []proto.Message{listenerTo("svc", "svc"), routesTo("svc", "svc"), xdstest.Cluster("svc", "svc", testplane.LoadReports()), endpointsAt("svc", 1)}
		first.serve(resources...)
		second.serve(resources...)
		first.refuse(errRefused)
		w := h.watch("svc")
		before := w.cluster(t, "svc").Leaves[0]
		if before.Load.Server != h.c.cfg.Servers[1].Key() {
			t.Errorf("load goes to %q, want the second server", before.Load.Server)
		}
		first.refuse(nil)
		advance(5 * time.Minute)
		after := w.cluster(t, "svc").Leaves[0]
		if after.Load.Server != h.c.cfg.Servers[0].Key() {
			t.Errorf("load goes to %q, want the first server", after.Load.Server)
		}
		if &before.Priorities[0] != &after.Priorities[0] {
			t.Error("the endpoints did not change, and are other values")
		}
	})
}

// TestAuthorities checks federation (A47, T-XDS-15): which server receives which requests, that a
// server that two authorities share is one server, and that equivalent names are the same name.
func TestAuthorities(t *testing.T) {
	bubble(t, func(t *testing.T) {
		extra := `, "authorities": {"one": {"xds_servers": [` + serverDoc("cp", "xds_v3") + `]}, "two": {"xds_servers": [` + serverDoc("other") + `]}}`
		h := newHarness(t, Options{}, []string{serverDoc("cp")}, extra)
		cp, other := h.servers["cp"], h.servers["other"]
		const (
			listener = "xdstp://one/envoy.config.listener.v3.Listener/svc"
			routes   = "xdstp://two/envoy.config.route.v3.RouteConfiguration/r?b=2&a=1"
			sorted   = "xdstp://two/envoy.config.route.v3.RouteConfiguration/r?a=1&b=2"
		)
		w := &recorder{}
		w.cancel = h.c.view().Watch(listener, "svc", w)
		plain := h.watch("plain")
		cp.asked(lds, "plain", listener)
		cp.send(lds, "1", listenerTo(listener, routes), listenerTo("plain", sorted))
		other.asked(rds, sorted)
		other.send(rds, "1", routesTo(routes, "c"))
		cp.asked(cds, "c")
		cp.send(cds, "1", clusterTo("c", "xdstp://two/envoy.config.endpoint.v3.ClusterLoadAssignment/e"))
		other.send(eds, "1", endpointsAt("xdstp://two/envoy.config.endpoint.v3.ClusterLoadAssignment/e", 1))
		if a, b := ports(w.cluster(t, "c")), ports(plain.cluster(t, "c")); a != "c 1" || b != "c 1" {
			t.Errorf("endpoints = %q and %q", a, b)
		}
		if a, b := cp.opened(), other.opened(); a != 1 || b != 1 {
			t.Errorf("%d and %d streams, want one each", a, b)
		}

		// An authority that the bootstrap does not have is the fault of the
		// resource that names it, and of nothing else.
		cp.send(lds, "2", listenerTo(listener, routes), listenerTo("plain", "xdstp://three/envoy.config.route.v3.RouteConfiguration/r"))
		plain.fails(t, `"three"`, "bootstrap")
		if w.must(t); w.got().errs != 0 {
			t.Errorf("error %v", w.got().err)
		}
		other.hangUp(errors.New("going away"))
	})
}

func TestAuthorityOf(t *testing.T) {
	for name, want := range map[string]authorityKey{
		"svc":                  {},
		"xdstp://a":            {},
		"xdstp://a/t":          {},
		"xdstp://a/t/id":       {true, "a"},
		"xdstp://a:8/t/id?x/y": {true, "a:8"},
		"xdstp:///t/id":        {true, ""},
		"xdstp:t/id":           {true, ""},
		"XDSTP://a/t/id":       {},
	} {
		if got := authorityOf(name); got != want {
			t.Errorf("authorityOf(%q) = %v, want %v", name, got, want)
		}
	}
}
