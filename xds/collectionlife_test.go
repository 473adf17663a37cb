// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestCollectionWaits: an assignment whose collections are not there yet does not replace
// what is in use, and one that never comes counts as empty in the end.
func TestCollectionWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := collecting(t, Options{}, deltaFeature)
		w := h.watch("svc")
		cp.sendEach(targetOf("svc", 1)...)
		cp.mustDelta().Send(eds.URL(), "2", collected("svc", "a", "c"))
		synctest.Wait()
		cp.mustDelta().Respond(membersOf("1", "a", 2))
		w.serves(t, "svc", "svc 1")
		if s := h.status(xdstest.Glob("", "c")); s.State != Requested || !s.Watched {
			t.Errorf("collection %+v, want one that is waited for", s)
		}
		advance(time.Minute)
		note := w.cluster(t, "svc").Leaves[0].ResolutionNote
		if got := ports(w.cluster(t, "svc")); got != "svc 2" || note == nil || !strings.Contains(note.Error(), "not found") {
			t.Errorf("endpoints %q, note %v", got, note)
		}
		if s := h.status(xdstest.Glob("", "c")); s.State != DoesNotExist {
			t.Errorf("collection %+v", s)
		}
		// What is said to be gone leaves what there is, and is no fault of what is empty.
		cp.mustDelta().Remove(leds.URL(), xdstest.Glob("", "a"), xdstest.Glob("", "c"))
		if got := ports(w.cluster(t, "svc")); got != "svc 2" || h.status(xdstest.Glob("", "a")).State != DoesNotExist {
			t.Errorf("endpoints %q", got)
		}
		cp.mustDelta().Respond(membersOf("2", "a", 3))
		cp.mustDelta().Respond(membersOf("2", "c", 4))
		if got := ports(w.cluster(t, "svc")); got != "svc 2 3 4" || w.cluster(t, "svc").Leaves[0].ResolutionNote != nil {
			t.Errorf("endpoints %q", got)
		}
		// Back to endpoints of its own: the collections are left.
		cp.mustDelta().Send(eds.URL(), "3", endpointsAt("svc", 9))
		advance(time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 9" || h.entries() != 4 {
			t.Errorf("endpoints %q, %d entries", got, h.entries())
		}
	})
}

// TestCollectionNeverComes: a control plane that begins to use collections, and does not send
// them, leaves the endpoints in use that there were, and the note says why. Once they come they
// count, and so does the word that there are none.
func TestCollectionNeverComes(t *testing.T) {
	for name, features := range map[string][]string{"keeps": {deltaFeature}, "drops": {deltaFeature, "fail_on_data_errors"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, cp := collecting(t, Options{}, features...)
				w := h.watch("svc")
				cp.sendEach(targetOf("svc", 1)...)
				check := func(want, wantNote string) {
					t.Helper()
					c := w.cluster(t, "svc")
					note := fmt.Sprint(c.Leaves[0].ResolutionNote)
					if got := ports(c); got != want || !strings.Contains(note, wantNote) {
						t.Errorf("endpoints %q, want %q; note %s, want %s", got, want, note, wantNote)
					}
				}
				cp.mustDelta().Send(eds.URL(), "2", collected("svc", "a", "b"))
				advance(time.Hour)
				if name == "drops" {
					check("svc", "not found")
					return
				}
				check("svc 1", "the previous endpoints stay in use")
				cp.mustDelta().Send(eds.URL(), "3", endpointsAt("svc", 3)) // it changes its mind
				check("svc 3", "nil")
				cp.mustDelta().Send(eds.URL(), "4", collected("svc", "a", "b"))
				advance(time.Hour)
				check("svc 3", "not found")
				cp.mustDelta().Respond(membersOf("1", "b", 7))
				check("svc 7", `a/*" not found`)
				cp.mustDelta().Send(eds.URL(), "5", collected("svc", "c"))
				advance(time.Minute)
				check("svc 7", `c/*" not found`)
				cp.mustDelta().Remove(leds.URL(), xdstest.Glob("", "c"))
				check("svc", "nil")
			})
		})
	}
}

// TestCollectionPending: a target that waits for a collection says so.
func TestCollectionPending(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := collecting(t, Options{}, deltaFeature)
		w := h.watch("svc")
		cp.sendEach(append(targetOf("svc")[:3], collected("svc", "a"))...)
		synctest.Wait()
		if err := h.c.view().Waiting("svc", "svc"); err == nil || !strings.Contains(err.Error(), xdstest.Glob("", "a")) {
			t.Errorf("waiting for %v", err)
		}
		names := 0
		for s := range h.c.view().TargetResources("svc", "svc") {
			if s.Type == leds {
				names++
			}
		}
		if names != 1 || w.got().updates != 0 {
			t.Errorf("%d collections, %d updates", names, w.got().updates)
		}
		cp.mustDelta().Remove(leds.URL(), xdstest.Glob("", "a")) // there is none: it is empty
		if got := ports(w.cluster(t, "svc")); got != "svc" || w.cluster(t, "svc").Leaves[0].ResolutionNote != nil {
			t.Errorf("endpoints %q", got)
		}
	})
}

// TestCollectionTTL: a member lives as long as the server says.
func TestCollectionTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := servingCollections(t, Options{})
		resp := membersOf("9", "a", 1)
		resp.Resources[0].Ttl = durationpb.New(time.Minute)
		cp.mustDelta().Respond(resp)
		advance(50 * time.Second)
		beat := &discoveryv3.Resource{Name: memberAt("a", 1), Ttl: durationpb.New(time.Minute)}
		cp.mustDelta().Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: leds.URL(), Resources: []*discoveryv3.Resource{beat}})
		advance(50 * time.Second)
		w.serves(t, "svc", "svc 1 2 3")
		advance(20 * time.Second)
		w.serves(t, "svc", "svc 2 3", "after the time to live")
		cp.mustDelta().Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: leds.URL(), Resources: []*discoveryv3.Resource{beat}})
		if s := cp.mustDelta().Stats(leds.URL()); s.NACKs != 0 {
			synctest.Wait()
		}
		synctest.Wait()
		if s := cp.mustDelta().Stats(leds.URL()); s.NACKs != 1 || !strings.Contains(s.LastError, "heartbeat for") {
			t.Errorf("%+v", s)
		}
	})
}

// TestCollectionLinger: what nobody wants any more is left, and asked for anew.
func TestCollectionLinger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := servingCollections(t, Options{Linger: -1})
		w.cancel()
		advance(time.Second)
		if got := cp.mustDelta().Stats(leds.URL()).Names; len(got) != 0 {
			t.Errorf("subscribed to %q", got)
		}
		cp.part("a", 1)
		w = h.watch("svc")
		w.serves(t, "svc", "svc 2 3")
		w.cancel()
		advance(time.Minute)
		if n := h.entries(); n != 0 {
			t.Errorf("%d entries", n)
		}
	})
}

// TestCollectionCrossing: what a server sends before it hears that a collection is unsubscribed
// from and subscribed to again does not count as all of it. The answer, after the collection has
// rested, does.
func TestCollectionCrossing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := collecting(t, Options{Linger: -1}, deltaFeature)
		w := h.watch("svc")
		send := func() {
			cp.sendEach(append(targetOf("svc")[:3], collected("svc", "a"))...)
			synctest.Wait()
		}
		send()
		cp.mustDelta().Respond(membersOf("1", "a", 1, 2, 3))
		w.must(t)
		check := func(what, want string) {
			t.Helper()
			w.serves(t, "svc", want, what)
		}
		w.cancel()
		synctest.Wait()
		w = h.watch("svc")
		send()
		crossing := membersOf("2", "a", 2)
		crossing.Resources[0].Resource = wrap(lbEndpoint(22))
		cp.mustDelta().Respond(crossing)
		check("a change that crossed", "svc 1 22 3")
		cp.mustDelta().Respond(membersOf("1", "a", 3))
		check("what has not changed, and crossed", "svc 1 22 3")
		advance(restTime)
		answer := membersOf("2", "a", 2, 3) // 1 is gone
		answer.Resources[0].Resource = wrap(lbEndpoint(22))
		cp.mustDelta().Respond(answer)
		check("the answer", "svc 22 3")
		if s := h.status(xdstest.Glob("", "a")); s.State != Acked || s.Members != 2 {
			t.Errorf("collection %+v", s)
		}
	})
}
