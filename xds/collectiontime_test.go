// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// beat is a heartbeat for a member of collection a.
func beat(port int, ttl time.Duration) *discoveryv3.DeltaDiscoveryResponse {
	return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: leds.URL(), Resources: []*discoveryv3.Resource{{Name: memberAt("a", port), Ttl: durationpb.New(ttl)}}}
}

// TestCollectionLost: a heartbeat for a member that the client has lost, or never had, is
// rejected, makes up no member, and has the server send the collection again. Members that the
// client has stay in use meanwhile.
func TestCollectionLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := servingCollections(t, Options{})
		resp := membersOf("9", "a", 1)
		resp.Resources[0].Ttl = durationpb.New(time.Minute)
		cp.mustDelta().Respond(resp)
		advance(2 * time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 2 3" {
			t.Fatalf("endpoints %q after the time to live", got)
		}
		cp.mustDelta().Respond(beat(1, time.Minute))
		cp.mustDelta().Respond(beat(2, time.Hour)) // on its way while the collection is asked for
		advance(3 * time.Second)
		w.serves(t, "svc", "svc 1 2 3")
		if s := cp.mustDelta().Stats(leds.URL()); s.NACKs != 1 || !strings.Contains(s.LastError, "heartbeat for") {
			t.Errorf("%+v", s)
		}
		cp.mustDelta().Respond(beat(77, time.Minute)) // which nobody has
		advance(3 * time.Second)
		if s := h.status(xdstest.Glob("", "a")); s.Members != 2 || s.State != Acked || ports(w.cluster(t, "svc")) != "svc 1 2 3" {
			t.Errorf("collection %+v, endpoints %q", s, ports(w.cluster(t, "svc")))
		}
	})
}

// TestCollectionLapses: members whose time is over at once are one change and one line of the
// log, however many they are.
func TestCollectionLapses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		book := &kit.Logs{}
		h, cp, w := servingCollections(t, Options{Logger: slog.New(book)})
		const n = 500
		var all []int
		for p := range n {
			all = append(all, 100+p)
		}
		resp := membersOf("9", "a", all...)
		for _, r := range resp.Resources {
			r.Ttl = durationpb.New(time.Minute)
		}
		cp.mustDelta().Respond(resp)
		updates := w.got().updates
		advance(2 * time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 1 2 3" || w.got().updates != updates+1 {
			t.Errorf("endpoints %q after %d updates, want one", got, w.got().updates-updates)
		}
		if lines := book.With("time to live"); len(lines) != 1 || !strings.Contains(lines[0], "members=500") || !strings.Contains(lines[0], "resource=xdstp:///") {
			t.Errorf("%d lines, the first is %q", len(lines), lines[:min(1, len(lines))])
		}
		if s := h.status(xdstest.Glob("", "a")); s.Members != 2 {
			t.Errorf("collection %+v", s)
		}
	})
}

// TestCollectionLog: addresses that are there twice are one line of the log, however many they
// are from one update to the next.
func TestCollectionLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		book := &kit.Logs{}
		_, cp, w := servingCollections(t, Options{Logger: slog.New(book)})
		const n = 30
		for p := range n {
			cp.join("a", 100+p)
			cp.join("b", 100+p)
		}
		note := w.cluster(t, "svc").Leaves[0].ResolutionNote
		if note == nil || !strings.Contains(note.Error(), "30 endpoints of collections ignored") {
			t.Errorf("note %v", note)
		}
		if lines := book.With("duplicate endpoints of collections ignored"); len(lines) != 1 {
			t.Errorf("%d lines in no time: %q", len(lines), lines)
		}
	})
}

// TestCollectionVariantFirst: a server that turns to state of the world before it has sent a
// collection leaves in use what is.
func TestCollectionVariantFirst(t *testing.T) {
	for name, fallback := range map[string]bool{"alone": false, "fallback": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				servers := []string{serverDoc("cp", deltaFeature)}
				if fallback {
					servers = append(servers, serverDoc("fallback"))
				}
				h := newHarness(t, Options{}, servers, `, "authorities": {"": {}}`)
				cp := h.servers["cp"]
				w := h.watch("svc")
				cp.sendEach(targetOf("svc", 1)...)
				cp.mustDelta().Send(eds.URL(), "2", collected("svc", "a"))
				synctest.Wait()
				if fallback {
					cp.refuse(errRefused)
				} else {
					cp.Serve(true, false)
				}
				advance(time.Minute)
				w.serves(t, "svc", "svc 1")
				if fallback && h.servers["fallback"].current() == nil {
					t.Error("there is no stream to the fallback")
				}
				cp.Serve(false, true)
				cp.refuse(nil)
				cp.join("a", 7)
				cp.serve(append(targetOf("svc", 1)[:3], collected("svc", "a"))...)
				advance(5 * time.Minute)
				w.serves(t, "svc", "svc 7")
			})
		})
	}
}
