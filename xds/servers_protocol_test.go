// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
)

// withServer is withServers with one server, and a target that it serves.
func withServer(t *testing.T, opts Options, features []string, f func(t *testing.T, h *harness, cp *plane, w *recorder)) {
	withServers(t, 1, opts, features, func(t *testing.T, h *harness, cps []*plane) {
		cps[0].set(targetOf("svc", 1)...)
		w := h.watch("svc")
		w.must(t)
		f(t, h, cps[0], w)
	})
}

// TestXDS1Answers: ACKs have the version and nonce of the response, NACKs the last accepted
// version, the nonce, and the error (T-XDS-1).
func TestXDS1Answers(t *testing.T) {
	withServer(t, Options{}, nil, func(t *testing.T, h *harness, cp *plane, w *recorder) {
		if h.c.opts.Delta {
			return // see delta_test.go
		}
		cp.update(badEndpoints("svc"))
		cp.update(endpointsAt("svc", 2))
		w.serves(t, "svc", "svc 2")
		s := cp.stream(0)
		var responses []string // version/nonce
		for _, resp := range s.heard {
			if resp.TypeUrl == eds.URL() {
				responses = append(responses, resp.VersionInfo+"/"+resp.Nonce)
			}
		}
		if len(responses) != 3 {
			t.Fatalf("responses %q, want three", responses)
		}
		accepted, _, _ := strings.Cut(responses[0], "/")
		_, nonce, _ := strings.Cut(responses[1], "/")
		want := []string{"[svc]/", "[svc]" + responses[0], "[svc]" + accepted + "/" + nonce + "!", "[svc]" + responses[2]}
		if got := s.requests(eds); !slices.Equal(got, want) {
			t.Errorf("requests = %q, want %q", got, want)
		}
		if got := cp.Stats(eds.URL()); got.NACKs != 1 || !strings.Contains(got.LastError, `"svc"`) {
			t.Errorf("stats = %+v", got)
		}
	})
}

// TestXDS2NewStream: on a new stream nonces start over, versions and names do not, the node is
// there again, and types without names are not mentioned (T-XDS-2, A27-NODE-1).
func TestXDS2NewStream(t *testing.T) {
	withServer(t, Options{}, nil, func(t *testing.T, h *harness, cp *plane, w *recorder) {
		if h.c.opts.Delta {
			return // see delta_test.go
		}
		h.watch("missing")
		cp.update(inlineListener("svc", routesTo("", "svc")))
		w.must(t)
		versions := map[string]string{}
		for _, req := range cp.stream(0).said {
			versions[req.TypeUrl] = req.VersionInfo
		}
		cp.hangUp()
		advance(2 * time.Second)
		s := cp.stream(1)
		for i, req := range s.said {
			if (req.Node != nil) != (i == 0) {
				t.Errorf("request %d has node %v", i, req.Node)
			}
		}
		for typ, names := range map[resource.Type]string{lds: "[missing svc]", cds: "[svc]", eds: "[svc]"} {
			if got, want := s.requests(typ)[0], names+versions[typ.URL()]+"/"; got != want {
				t.Errorf("first %v request = %q, want %q", typ, got, want)
			}
		}
		if got := s.requests(rds); len(got) != 0 {
			t.Errorf("RDS requests %q, want none", got)
		}
	})
}

// TestXDS3Unsubscribe: the last unwatch is sent to the server on the live stream, and a resource
// that is watched again is received again (T-XDS-3).
func TestXDS3Unsubscribe(t *testing.T) {
	withServer(t, Options{Linger: -1}, nil, func(t *testing.T, h *harness, cp *plane, w *recorder) {
		for _, pause := range []time.Duration{0, time.Second, time.Minute} {
			w.cancel()
			for _, typ := range []resource.Type{lds, rds, cds, eds} {
				cp.asked(typ)
			}
			advance(pause)
			w = h.watch("svc")
			w.must(t)
			advance(restTime)
			cp.asked(eds, "svc")
		}
		if n := cp.opened(); n != 1 {
			t.Errorf("%d streams, want 1", n)
		}
	})
}

// TestXDS4Races: subscriptions and responses that cross each other: whatever is
// asked for comes, in the latest version (T-XDS-4).
func TestXDS4Races(t *testing.T) {
	withServers(t, 1, Options{Linger: -1}, nil, func(t *testing.T, h *harness, cps []*plane) {
		const n = 8
		rng := rand.New(rand.NewPCG(1, 4))
		cp := cps[0]
		watches := map[int]*recorder{}
		for round := range 60 {
			var all []proto.Message
			for i := range n {
				all = append(all, targetOf(fmt.Sprint("t", i), uint16(1+n*round+i))...)
			}
			kit.Must(t, cp.Update(collect(all)))
			for range 3 { // while the responses are on their way
				i := rng.IntN(n)
				if w := watches[i]; w != nil {
					w.cancel()
					delete(watches, i)
				} else {
					watches[i] = h.watch(fmt.Sprint("t", i))
				}
			}
			if round%3 > 0 {
				continue
			}
			advance(4 * restTime) // for a target's resources, one after the other
			for i, w := range watches {
				name := fmt.Sprint("t", i)
				if got, want := ports(w.cluster(t, name)), fmt.Sprint(name, " ", 1+n*round+i); got != want {
					t.Fatalf("round %d: endpoints = %q, want %q", round, got, want)
				}
			}
		}
	})
}

// TestXDS5Bursts: a hundred clusters are one request, and a name that was asked
// for is in every request from then on (T-XDS-5).
func TestXDS5Bursts(t *testing.T) {
	withServers(t, 1, Options{}, nil, func(t *testing.T, h *harness, cps []*plane) {
		cp := cps[0]
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("c%02d", i))
		}
		all := []proto.Message{listenerTo("svc", "r"), routesTo("r", names...)}
		for i, name := range names {
			all = append(all, clusterTo(name, name), endpointsAt(name, uint16(1+i)))
		}
		cp.set(all...)
		if n := len(h.watch("svc").must(t).Clusters); n != 100 {
			t.Errorf("%d clusters, want 100", n)
		}
		for _, typ := range []resource.Type{cds, eds} {
			requests := cp.stream(0).requests(typ)
			if len(requests) > 4 {
				t.Errorf("%d %v requests for 100 names", len(requests), typ)
			}
			for _, req := range requests {
				if !strings.HasPrefix(req, fmt.Sprint(names)) {
					t.Errorf("%v request %q", typ, req)
				}
			}
		}
	})
}

// TestXDS6Absence: a resource that is absent from a response is deleted if it is a Listener or a
// Cluster and had been received, and otherwise not (T-XDS-6).
func TestXDS6Absence(t *testing.T) {
	withServer(t, Options{}, []string{"fail_on_data_errors"}, func(t *testing.T, h *harness, cp *plane, w *recorder) {
		late := h.watch("late")
		cp.resend(lds, "svc")
		cp.update(targetOf("other", 9)...)
		if got := late.got(); got.errs+got.updates != 0 {
			t.Errorf("%d errors and %d updates of a target that has no resources yet; %v", got.errs, got.updates, got.err)
		}
		// A response of EDS or RDS deletes nothing by absence; the incremental variant can remove
		// resources explicitly.
		cp.set(listenerTo("svc", "svc"), clusterTo("svc", "svc"))
		c := w.cluster(t, "svc")
		if ports(c) != "svc 1" || (w.got().updates > 1 || c.Leaves[0].ResolutionNote != nil) != h.c.opts.Delta {
			t.Errorf("endpoints = %q in update %d; note %v", ports(c), w.got().updates, c.Leaves[0].ResolutionNote)
		}
		cp.set(listenerTo("svc", "svc"))
		if err := w.cluster(t, "svc").Err; err == nil || !strings.Contains(err.Error(), "removed") {
			t.Errorf("error of the cluster = %v", err)
		}
		cp.set()
		w.fails(t, "ListenerResource", "removed")
		cp.set(targetOf("svc", 3)...)
		advance(restTime)
		w.serves(t, "svc", "svc 3")
	})
}

// TestXDS9Mixed: the valid resources of a rejected response are applied; a resource that returns to
// a valid version has no error any more (T-XDS-9, A46).
func TestXDS9Mixed(t *testing.T) {
	withServers(t, 1, Options{}, nil, func(t *testing.T, h *harness, cps []*plane) {
		cp := cps[0]
		cp.set(listenerTo("svc", "r"), routesTo("r", "a", "b"), clusterTo("a", "a"), clusterTo("b", "b"), endpointsAt("a", 1), endpointsAt("b", 2))
		w := h.watch("svc")
		w.must(t)
		cp.update(endpointsAt("a", 11), badEndpoints("b"))
		a, b := w.cluster(t, "a"), w.cluster(t, "b")
		if ports(a) != "a 11" || ports(b) != "b 2" || a.Leaves[0].ResolutionNote != nil || b.Leaves[0].ResolutionNote == nil {
			t.Errorf("endpoints %q and %q, notes %v and %v", ports(a), ports(b), a.Leaves[0].ResolutionNote, b.Leaves[0].ResolutionNote)
		}
		cp.update(endpointsAt("b", 2))
		if b = w.cluster(t, "b"); b.Leaves[0].ResolutionNote != nil || ports(b) != "b 2" {
			t.Errorf("endpoints %q, note %v", ports(b), b.Leaves[0].ResolutionNote)
		}
		if s := statusOf(h.c, eds, "b"); s.State != Acked {
			t.Errorf("status = %+v", s)
		}
		if got := cp.Stats(eds.URL()); got.NACKs != 1 {
			t.Errorf("stats = %+v", got)
		}
	})
}

// TestXDS10Unchanged: a resource in a new version with the same bytes is accepted,
// and publishes nothing (T-XDS-10).
func TestXDS10Unchanged(t *testing.T) {
	withServer(t, Options{}, nil, func(t *testing.T, h *harness, cp *plane, w *recorder) {
		before := w.must(t)
		for _, typ := range []resource.Type{lds, rds, cds, eds} {
			acks := cp.Stats(typ.URL()).ACKs
			cp.resend(typ, "svc")
			// The versions of go-control-plane's increments are hashes.
			same := h.c.opts.Delta && strings.HasSuffix(t.Name(), "go-control-plane")
			if got := cp.Stats(typ.URL()).ACKs; got != acks+1 && !same {
				t.Errorf("%v: %d ACKs, want %d", typ, got, acks+1)
			}
		}
		if w.got().updates != 1 || w.must(t) != before {
			t.Errorf("%d updates, want 1: nothing changed", w.got().updates)
		}
		// A rejected version that comes again is no news either.
		cp.update(badEndpoints("svc"))
		updates := w.got().updates
		cp.resend(eds, "svc")
		if w.got().updates != updates {
			t.Error("the same invalid bytes were news")
		}
	})
}

// TestXDS11NewWatcherOfRejected: who watches a resource whose latest version was
// rejected gets the one in use, and the error (T-XDS-11).
func TestXDS11NewWatcherOfRejected(t *testing.T) {
	withServer(t, Options{}, nil, func(t *testing.T, h *harness, cp *plane, w *recorder) {
		cp.update(badEndpoints("svc"), listenerTo("second", "svc"))
		leaf := h.watch("second").cluster(t, "svc").Leaves[0]
		if leaf.ResolutionNote == nil || len(leaf.Priorities) != 1 {
			t.Errorf("leaf = %+v", leaf)
		}
	})
}

// TestXDS14SlowWatcher: while a watcher is busy, at most a few responses are taken
// in, and once it is not, the latest arrives (T-XDS-14).
func TestXDS14SlowWatcher(t *testing.T) {
	withServer(t, Options{}, nil, func(t *testing.T, h *harness, cp *plane, w *recorder) {
		w.mu.Lock()
		w.block = make(chan struct{})
		block := w.block
		w.mu.Unlock()
		heard := len(cp.stream(0).heard)
		for i := range 100 {
			cp.update(endpointsAt("svc", uint16(100+i)))
		}
		if n := len(cp.stream(0).heard) - heard; n > 3 {
			t.Errorf("%d responses were taken in", n)
		}
		w.mu.Lock()
		w.block = nil
		w.mu.Unlock()
		close(block)
		advance(time.Minute)
		w.serves(t, "svc", "svc 199")
	})
}

// TestXDS15Names: names of the new style are sent, compared and shared in their
// canonical form, and go to the servers of their authority (T-XDS-15, A47).
func TestXDS15Names(t *testing.T) {
	withServers(t, 1, Options{}, nil, func(t *testing.T, h *harness, cps []*plane) {
		const (
			asWritten = "xdstp://auth/envoy.config.route.v3.RouteConfiguration/r?b=2&a=1"
			sorted    = "xdstp://auth/envoy.config.route.v3.RouteConfiguration/r?a=1&b=2"
		)
		cp := cps[0]
		cp.set(listenerTo("one", asWritten), listenerTo("two", sorted), routesTo(sorted, "c"), clusterTo("c", "c"), endpointsAt("c", 1))
		one, two := h.watch("one"), h.watch("two")
		if a, b := ports(one.cluster(t, "c")), ports(two.cluster(t, "c")); a != "c 1" || b != "c 1" {
			t.Errorf("endpoints %q and %q", a, b)
		}
		cp.asked(rds, sorted)
		if n := cp.opened(); n != 1 {
			t.Errorf("%d streams to one server of two authorities, want 1", n)
		}
	})
}
