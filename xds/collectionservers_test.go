// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestCollectionReconnect: names and versions go up, and only what has changed comes down.
func TestCollectionReconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := servingCollections(t, Options{})
		updates := w.got().updates
		cp.hangUp(errors.New("bye"))
		advance(time.Minute)
		reqs := cp.mustDelta().Requests(leds.URL())
		if len(reqs) != 1 || len(reqs[0].InitialResourceVersions) != 3 || len(reqs[0].ResourceNamesSubscribe) != 2 {
			t.Errorf("requests %v, want one with three versions", reqs)
		}
		if n := cp.mustDelta().Stats(leds.URL()).Responses; n != 0 || w.got().updates != updates {
			t.Errorf("%d responses, want none", n)
		}
		cp.refuse(errRefused)
		advance(time.Second)
		cp.part("a", 1)
		cp.join("b", 8)
		cp.refuse(nil)
		advance(time.Minute)
		w.serves(t, "svc", "svc 2 3 8")
		if n := cp.mustDelta().Stats(leds.URL()).Responses; n != 1 {
			t.Errorf("%d responses, want one", n)
		}
	})
}

// TestCollectionSotW: a glob collection cannot be had in state of the world. The assignment
// is refused, with the remedy, and what is in use stays.
func TestCollectionSotW(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := collecting(t, Options{})
		cp.serve(targetOf("svc", 1)...)
		w := h.watch("svc")
		w.must(t)
		cp.serve(collected("svc", "a"))
		w.serves(t, "svc", "svc 1")
		if _, nacks, detail := cp.counts(eds); nacks != 1 || !strings.Contains(detail, "endpoints[0].leds_cluster_locality_config.leds_collection_name") || !strings.Contains(detail, deltaFeature) {
			t.Errorf("%d NACKs: %s", nacks, detail)
		}
	})
}

// TestCollectionVariant: a server that turns to the other variant and back.
func TestCollectionVariant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := servingCollections(t, Options{})
		cp.Serve(true, false)
		advance(time.Minute)
		w.serves(t, "svc", "svc 1 2 3")
		if s := h.status(xdstest.Glob("", "a")); s.State != Unknown || !strings.Contains(s.Err.Error(), "does not use incremental ADS") {
			t.Errorf("collection %+v", s)
		}
		cp.Serve(false, true)
		cp.part("a", 1)
		advance(5 * time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 2 3" || h.status(xdstest.Glob("", "a")).State != Acked {
			t.Errorf("endpoints %q, collection %+v", got, h.status(xdstest.Glob("", "a")))
		}
	})
}

// TestCollectionVariantSilent: a server that turns to state of the world and back, and does not
// send a collection, has its time like any other.
func TestCollectionVariantSilent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := collecting(t, Options{}, deltaFeature)
		w := h.watch("svc")
		cp.sendEach(targetOf("svc", 1)...)
		cp.mustDelta().Send(eds.URL(), "2", collected("svc", "a"))
		cp.mustDelta() // which waits until that has been received
		cp.Serve(true, false)
		cp.hangUp(nil)
		advance(time.Minute)
		if s := h.status(xdstest.Glob("", "a")); s.State != Unknown {
			t.Errorf("in state of the world: collection %+v", s)
		}
		cp.Serve(false, true)
		advance(5 * time.Minute)
		if s := h.status(xdstest.Glob("", "a")); s.State != DoesNotExist || !strings.Contains(s.Err.Error(), "not found") {
			t.Errorf("collection %+v", s)
		}
		w.serves(t, "svc", "svc 1")
	})
}

// TestCollectionOtherServer: an assignment that is refused because the server of its collections,
// which is another one, cannot be asked for them, counts as soon as it can. The server that sent
// it has no reason to send it again.
func TestCollectionOtherServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		extra := `, "authorities": {"": {"xds_servers": [` + serverDoc("members", deltaFeature) + `]}}`
		h := newHarness(t, Options{}, []string{serverDoc("cp", deltaFeature)}, extra)
		cp, members := h.servers["cp"], h.servers["members"]
		members.join("a", 1)
		members.join("b", 2)
		cp.serve(append(targetOf("svc")[:3], collected("svc", "a"))...)
		w := h.watch("svc")
		check := func(what, want string, state State) {
			t.Helper()
			if got := ports(w.cluster(t, "svc")); got != want || h.statusOf(eds, "svc").State != state {
				t.Errorf("%s: endpoints %q, want %q; assignment %+v", what, got, want, h.statusOf(eds, "svc"))
			}
		}
		check("both are incremental", "svc 1", Acked)
		members.Serve(true, false)
		advance(time.Minute)
		cp.serve(collected("svc", "a", "b"))
		check("one is not", "svc 1", Nacked)
		cp.serve(collected("svc", "a", "b")) // it is as it was
		check("one is not, still", "svc 1", Nacked)
		members.Serve(false, true)
		advance(5 * time.Minute)
		check("both are again", "svc 1 2", Acked)
		if n := cp.mustDelta().Stats(eds.URL()).Responses; n > 3 {
			t.Errorf("%d responses", n)
		}
	})
}

// TestCollectionServers: what another server of the chain has takes the place of all that
// the one before it had.
func TestCollectionServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, Options{}, []string{serverDoc("cp", deltaFeature), serverDoc("fallback", deltaFeature)}, `, "authorities": {"": {}}`)
		first, second := h.servers["cp"], h.servers["fallback"]
		for i, cp := range []*fake{first, second} {
			cp.join("a", 1, 2+i)
			cp.serve(append(targetOf("svc", 1)[:3], collected("svc", "a"))...)
		}
		first.refuse(errRefused)
		w := h.watch("svc")
		advance(time.Minute)
		w.serves(t, "svc", "svc 1 3")
		first.refuse(nil)
		advance(5 * time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 1 2" || second.connected() {
			t.Errorf("endpoints %q, want those of the first server", got)
		}
	})
}
