// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
)

// TestXDS7Timer: a resource that does not come counts as missing, not before the
// time that it has, and is welcome after it (T-XDS-7, A57; A88 for the other
// kind of timer).
func TestXDS7Timer(t *testing.T) {
	for feature, timeout := range map[string]time.Duration{"": 15 * time.Second, "resource_timer_is_transient_error": 30 * time.Second} {
		withServers(t, 1, Options{}, []string{feature}, func(t *testing.T, h *harness, cps []*plane) {
			cp := cps[0]
			cp.set(listenerTo("svc", "svc"), clusterTo("svc", "svc"))
			w := h.watch("svc")
			advance(timeout - time.Millisecond)
			if got := w.got(); got.errs > 0 {
				t.Fatalf("too early: %v", got.err)
			}
			advance(time.Millisecond)
			w.fails(t, `RouteConfiguration resource "svc"`, "not found", "node-1")
			cp.set(targetOf("svc", 1)...)
			w.must(t)
			// A resource in the cache has no timer, on a new stream neither.
			cp.hangUp()
			advance(time.Hour)
			if got := w.got(); got.config == nil {
				t.Errorf("error %v", got.err)
			}
		})
	}
}

// TestXDS8Streams: the end of a stream that had a response is not reported. An unreachable server
// is reported to the watchers that have nothing yet. Neither leads to more than one attempt per
// base interval (T-XDS-8, T-XDS-18, A57).
func TestXDS8Streams(t *testing.T) {
	withServer(t, Options{}, nil, func(t *testing.T, h *harness, cp *plane, w *recorder) {
		start := time.Now()
		for range 400 {
			cp.hangUp()
			advance(250 * time.Millisecond)
		}
		if n, d := cp.opened(), time.Since(start); n > int(d/time.Second)+1 || n < 10 && !h.c.opts.Delta {
			t.Errorf("%d streams in %v", n, d)
		}
		cp.refuse(errRefused)
		late := h.watch("late")
		advance(10 * time.Second)
		if h.c.opts.Delta {
			// Streams that end while there is nothing to say had no response.
			advance(2 * time.Minute)
		}
		late.fails(t, "node-1", "connection refused", "passthrough:///cp0")
		if got := w.got(); got.errs > 0 || got.updates > 1 {
			t.Errorf("%d errors and %d updates of a target that is served; %v", got.errs, got.updates, got.err)
		}
		cp.refuse(nil)
		cp.update(targetOf("late", 7)...)
		advance(5 * time.Minute)
		late.must(t)
	})
}

// TestRejectionLoop: a server that sends a rejected resource again, as soon as it
// hears of that, does not keep the client busy (T-XDS-1). go-control-plane does so
// with the first version of a type.
func TestRejectionLoop(t *testing.T) {
	withServers(t, 1, Options{}, nil, func(t *testing.T, h *harness, cps []*plane) {
		cp := cps[0]
		all := targetOf("svc", 1)
		all[3] = badEndpoints("svc")
		cp.set(all...)
		w := h.watch("svc")
		advance(time.Minute)
		if n := cp.Stats(eds.URL()).NACKs; n < 1 || n > 61 {
			t.Errorf("%d NACKs in a minute, want no more than one in a second", n)
		}
		// Resources that are requested meanwhile do not wait.
		cp.update(targetOf("other", 2)...)
		h.watch("other").must(t)
		cp.update(endpointsAt("svc", 3))
		advance(time.Second)
		w.serves(t, "svc", "svc 3")
	})
}

// TestRejectionRepeated is TestRejectionLoop step by step.
func TestRejectionRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		h.watch("svc")
		bad := listenerTo("svc", "")
		nacks := func(want int) {
			t.Helper()
			if _, n, _ := cp.counts(lds); n != want {
				t.Errorf("%d NACKs, want %d", n, want)
			}
		}
		cp.send(lds, "1", bad)
		nacks(1)
		cp.send(lds, "1", bad) // the same again: later
		nacks(1)
		cp.send(lds, "1", bad)
		nacks(1)
		advance(time.Second)
		nacks(2)
		advance(time.Minute)
		nacks(2)
		cp.send(lds, "1", bad)
		h.watch("other") // a request that carries it
		nacks(3)
		advance(time.Minute)
		nacks(3)
		cp.send(lds, "2", bad)
		nacks(4)
		advance(time.Second)
		cp.send(lds, "3", listenerTo("svc", "r"))
		if acks, _, _ := cp.counts(lds); acks != 1 {
			t.Errorf("%d ACKs, want 1", acks)
		}
		cp.send(lds, "2", bad)
		nacks(5)
	})
}

// TestRejectionAlternates checks that a server which sends invalid versions in turn,
// each with another fault, and valid ones between them, gets no more than a NACK in
// a second, and makes one line for each fault in the log.
func TestRejectionAlternates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		book := &kit.Logs{}
		h, cp := only(t, Options{Logger: slog.New(book)})
		h.watch("svc")
		for i := range 300 {
			bad := listenerTo("svc", "")
			bad.ApiListener.ApiListener.TypeUrl = fmt.Sprint("bad-", i%2)
			if i%3 == 2 {
				bad = listenerTo("svc", "r")
			}
			cp.send(lds, fmt.Sprint(i%3), bad)
			advance(10 * time.Millisecond)
		}
		advance(2 * time.Second)
		if _, nacks, _ := cp.counts(lds); nacks < 3 || nacks > 4 {
			t.Errorf("%d NACKs in 3 s, want one in each", nacks)
		}
		if lines := book.With("WARN", "NACK"); len(lines) != 2 {
			t.Errorf("%d warnings about two faults: %q", len(lines), lines)
		}
	})
}

// TestA57Outage: a control plane that is unreachable for an hour removes no resources, and its
// responses are applied when it is back (A57).
func TestA57Outage(t *testing.T) {
	withServer(t, Options{}, []string{"fail_on_data_errors"}, func(t *testing.T, h *harness, cp *plane, w *recorder) {
		cp.refuse(errRefused)
		advance(time.Hour)
		if got := w.got(); got.errs != 0 || got.updates != 1 {
			t.Errorf("%d errors and %d updates; %v", got.errs, got.updates, got.err)
		}
		cp.update(endpointsAt("svc", 2))
		cp.refuse(nil)
		advance(5 * time.Minute)
		w.serves(t, "svc", "svc 2")
	})
}

// TestA53A88Deletion: the effect of a deletion with each of the server features.
func TestA53A88Deletion(t *testing.T) {
	for _, tt := range []struct {
		feature string
		opts    Options
		drops   bool
	}{
		{"", Options{}, false},
		{"", Options{TargetOptions: TargetOptions{DropDeleted: true}}, true},
		{"ignore_resource_deletion", Options{TargetOptions: TargetOptions{DropDeleted: true}}, false},
		{"fail_on_data_errors", Options{}, true},
	} {
		for _, typ := range []resource.Type{lds, cds} {
			withServer(t, tt.opts, []string{tt.feature}, func(t *testing.T, h *harness, cp *plane, w *recorder) {
				all := targetOf("svc", 1)
				cp.set(append(all[:typ:typ], all[typ+1:]...)...)
				got := w.got()
				dropped := got.config == nil || got.config.Clusters[0].Err != nil
				if dropped != tt.drops {
					t.Errorf("%v, %q, %v: dropped = %v; %+v", typ, tt.feature, tt.opts.DropDeleted, dropped, got)
				}
				if s := statusOf(h.c, typ, "svc"); s.State != DoesNotExist {
					t.Errorf("status = %+v", s)
				}
				cp.set(targetOf("svc", 1)...)
				if c := w.cluster(t, "svc"); c.Err != nil || c.Leaves[0].ResolutionNote != nil {
					t.Errorf("cluster = %+v after the return", c)
				}
			})
		}
	}
}

// TestA71Fallback: the next server is used only while the first is unreachable and a resource is
// missing from the cache, and only until the first response of the first server (A71, T-XDS-16).
func TestA71Fallback(t *testing.T) {
	withServers(t, 2, Options{}, nil, func(t *testing.T, h *harness, cps []*plane) {
		one, two := cps[0], cps[1]
		one.set(targetOf("svc", 1)...)
		two.set(append(targetOf("svc", 2), targetOf("new", 3)...)...)
		w := h.watch("svc")
		w.must(t)
		one.refuse(errRefused)
		advance(10 * time.Minute)
		if n := two.opened(); n != 0 {
			t.Errorf("%d streams to the second server, and nothing is missing", n)
		}
		late := h.watch("new")
		if a, b := ports(late.cluster(t, "new")), ports(w.cluster(t, "svc")); a != "new 3" || b != "svc 2" {
			t.Errorf("endpoints %q and %q, want all from the second server", a, b)
		}
		one.set(append(targetOf("svc", 1), targetOf("new", 4)...)...)
		one.refuse(nil)
		advance(10 * time.Minute)
		if a, b := ports(late.cluster(t, "new")), ports(w.cluster(t, "svc")); a != "new 4" || b != "svc 1" {
			t.Errorf("endpoints %q and %q, want all from the first server", a, b)
		}
		if open, total := two.Streams(); open != 0 || total != 1 {
			t.Errorf("%d of %d streams to the second server", open, total)
		}
		if w.got().errs+late.got().errs > 0 {
			t.Errorf("errors %v, %v", w.got().err, late.got().err)
		}
	})
}

// TestWatch2Switch: a new dependency is put to use when it is there, the old one
// is in use until then, and let go after (T-WATCH-2, A74).
func TestWatch2Switch(t *testing.T) {
	withServer(t, Options{}, nil, func(t *testing.T, h *harness, cp *plane, w *recorder) {
		before := w.must(t)
		same := func(what string) {
			t.Helper()
			if w.must(t) != before {
				t.Errorf("%s: another configuration before all of it is there", what)
			}
		}
		cp.update(listenerTo("svc", "r2"))
		same("a new route name")
		cp.update(routesTo("r2", "c2"))
		same("a new cluster name")
		cp.update(clusterTo("c2", "e2"))
		same("a new service name")
		cp.asked(eds, "e2", "svc")
		cp.update(endpointsAt("e2", 2))
		if got := ports(w.cluster(t, "c2")); got != "c2 2" || w.got().updates != 2 {
			t.Errorf("endpoints %q in update %d", got, w.got().updates)
		}
		cp.asked(rds, "r2")
		cp.asked(eds, "e2")

		cp.update(clusterTo("c2", "e3"))
		w.serves(t, "c2", "c2 2", "before the new ones are there")
		cp.update(endpointsAt("e3", 3))
		w.serves(t, "c2", "c2 3")
		cp.asked(eds, "e3")
	})
}

// TestWatch3Forget: unwatched resources are forgotten, and fetched again for the
// next who does (T-WATCH-3).
func TestWatch3Forget(t *testing.T) {
	withServer(t, Options{Linger: -1}, nil, func(t *testing.T, h *harness, cp *plane, w *recorder) {
		w.cancel()
		advance(time.Minute)
		if n := h.entries(); n != 0 {
			t.Errorf("%d entries are left", n)
		}
		cp.update(endpointsAt("svc", 2))
		again := h.watch("svc")
		if got := ports(again.cluster(t, "svc")); got != "svc 2" || again.got().updates != 1 {
			t.Errorf("endpoints %q in update %d, want the new ones at once", got, again.got().updates)
		}
	})
}

// TestWatch4Isolation: one bad cluster is the business of its own traffic, and an
// error without earlier data leaves an empty one (T-WATCH-4).
func TestWatch4Isolation(t *testing.T) {
	withServers(t, 1, Options{}, nil, func(t *testing.T, h *harness, cps []*plane) {
		cp := cps[0]
		cp.set(listenerTo("svc", "r"), routesTo("r", "good", "bad", "lost", "empty"), endpointsAt("good", 1), badEndpoints("empty"),
			clusterTo("good", "good"), badCluster("bad"), clusterTo("empty", "empty"))
		w := h.watch("svc")
		advance(16 * time.Second)
		w.serves(t, "good", "good 1")
		if err := w.cluster(t, "bad").Err; err == nil || !strings.Contains(err.Error(), "lrs_server") {
			t.Errorf("bad: error = %v", err)
		}
		if err := w.cluster(t, "lost").Err; err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("lost: error = %v", err)
		}
		if c := w.cluster(t, "empty"); c.Err != nil || len(c.Leaves) != 1 || c.Leaves[0].ResolutionNote == nil || len(c.Leaves[0].Priorities) != 0 {
			t.Errorf("empty = %+v", c)
		}
		// A new version that is bad leaves the old one in use.
		cp.update(badEndpoints("good"))
		if c := w.cluster(t, "good"); ports(c) != "good 1" || c.Leaves[0].ResolutionNote == nil {
			t.Errorf("endpoints = %q, note %v", ports(c), c.Leaves[0].ResolutionNote)
		}
	})
}

// TestWatch5Aggregate: of a diamond each leaf counts once, at its first place, and
// a child that is missing is passed over (T-WATCH-5, A37, A74, A75).
func TestWatch5Aggregate(t *testing.T) {
	withServers(t, 1, Options{}, nil, func(t *testing.T, h *harness, cps []*plane) {
		cps[0].set(listenerTo("svc", "r"), routesTo("r", "top"),
			aggregateOf("top", "left", "gone", "right"), aggregateOf("left", "x", "y"), aggregateOf("right", "y", "x", "top", "z"),
			clusterTo("x", "x"), clusterTo("y", "y"), clusterTo("z", "z"), endpointsAt("x", 1), endpointsAt("y", 2), endpointsAt("z", 3))
		w := h.watch("svc")
		advance(16 * time.Second)
		w.serves(t, "top", "x 1 | y 2 | z 3")
	})
}
