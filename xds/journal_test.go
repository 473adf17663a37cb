// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/xdslb/xdslb/xds/eventlog"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
)

// kinds returns the kinds of a target's events after the first n, with the names of
// resources and servers.
func (h *harness) kinds(target string, n int) (kinds []string) {
	h.t.Helper()
	events := h.c.view().Events(target, target)
	if !slices.IsSortedFunc(events, func(a, b eventlog.Event) int { return a.Time.Compare(b.Time) }) {
		h.t.Errorf("events are not in order: %v", events)
	}
	for _, e := range events[min(n, len(events)):] {
		s := string(e.Kind)
		if e.Type != "" {
			s += fmt.Sprintf(" %s %s %s", e.Type, e.Resource, e.Version)
		}
		s += " " + strings.TrimPrefix(e.Server, "passthrough:///")
		kinds = append(kinds, strings.Join(strings.Fields(s), " "))
	}
	return kinds
}

// follow checks the events that have come since the last call.
func (h *harness) follow(seen *int, target string, want ...string) {
	h.t.Helper()
	got := h.kinds(target, *seen)
	*seen += len(got)
	if !slices.Equal(got, want) {
		h.t.Errorf("events = %q, want %q", got, want)
	}
}

// TestEvents checks the events in a target's journal.
func TestEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{Linger: -1})
		if got := h.c.view().Events("svc", "svc"); got != nil {
			t.Errorf("events of resources that are not watched: %v", got)
		}
		w := h.watch("svc")
		h.watch("other")
		seen, others := 0, 0
		cp.send(lds, "1", listenerTo("svc", "r"))
		h.follow(&seen, "svc", "Connected cp", "Accepted Listener svc 1 cp")
		cp.send(rds, "2", routesTo("r", "c"))
		cp.send(cds, "3", clusterTo("c", "e"))
		cp.send(eds, "4", endpointsAt("e", 1))
		h.follow(&seen, "svc", "Accepted RouteConfiguration r 2 cp", "Accepted Cluster c 3 cp", "Accepted ClusterLoadAssignment e 4 cp", "ConfigurationDelivered")
		cp.send(eds, "5", endpointsAt("e", 1)) // no news
		h.follow(&seen, "svc")
		cp.send(eds, "6", badEndpoints("e"))
		h.follow(&seen, "svc", "Rejected ClusterLoadAssignment e 6 cp", "ConfigurationDelivered")
		if e := h.c.view().Events("svc", "svc")[seen-2]; !strings.Contains(e.Error, "priority 0") || !strings.Contains(e.String(), `version "6" server "passthrough:///cp": `) {
			t.Errorf("event = %v", e)
		}
		cp.send(eds, "7", badEndpoints("e")) // no news
		h.follow(&seen, "svc")
		cp.send(cds, "8")
		h.follow(&seen, "svc", "Deleted Cluster c cp", "ConfigurationDelivered")
		cp.respond(eds, &discoveryv3.DiscoveryResponse{VersionInfo: "9", Nonce: "9", ResourceErrors: []*discoveryv3.ResourceError{{
			ResourceName: &discoveryv3.ResourceName{Name: "e"}, ErrorDetail: &statuspb.Status{Code: int32(codes.PermissionDenied), Message: "not yours"},
		}}})
		h.follow(&seen, "svc", "ErrorReceived ClusterLoadAssignment e cp", "ConfigurationDelivered")
		cp.hangUp(errors.New("reload"))
		h.follow(&seen, "svc", "StreamFailed cp")
		advance(15 * time.Minute)
		cp.send(rds, "10", routesTo("r", "c"))
		h.follow(&seen, "svc", "Connected cp")
		h.follow(&others, "other", "Connected cp", "StreamFailed cp", "Missing Listener other cp", "TargetFailed", "Connected cp")
		w.cancel()
		if got := h.c.view().Events("svc", "svc"); got != nil {
			t.Errorf("events of resources that are no longer watched: %v", got)
		}
	})
}

// TestEventsOutage checks that an outage is a few events, however long it takes, and that fallback
// and return are in the journals of the affected targets.
func TestEventsOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, Options{}, []string{serverDoc("one"), serverDoc("two")}, "")
		one, two := h.servers["one"], h.servers["two"]
		one.serve(targetOf("old", 1)...)
		h.watch("old").must(t)
		seen := len(h.c.view().Events("old", "old"))
		one.refuse(errRefused)
		advance(time.Hour)
		lost := h.kinds("old", seen)
		if len(lost) < 1 || len(lost) > 3 || slices.ContainsFunc(lost, func(k string) bool { return k != "StreamFailed one" }) {
			t.Errorf("an hour without the server: %q", lost)
		}
		seen += len(lost)
		two.serve(append(targetOf("new", 2), targetOf("old", 1)...)...)
		h.watch("new").must(t)
		late := h.kinds("new", 0)
		if !slices.Contains(late, "Fallback one") || !slices.Contains(late, "Connected two") {
			t.Errorf("the target that makes the client fall back: %q", late)
		}
		if got := h.kinds("old", seen); !slices.Contains(got, "Fallback one") {
			t.Errorf("the target that was there: %q", got)
		}
		one.refuse(nil)
		one.serve(targetOf("new", 2)...)
		advance(time.Hour)
		for _, target := range []string{"old", "new"} {
			if got := h.kinds(target, 0); !slices.Contains(got, "Return one") {
				t.Errorf("%s: %q", target, got)
			}
		}
	})
}

// TestEventsShared checks that an event about a resource is in the journals of the targets that
// watch it, and in no other journal.
func TestEventsShared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		cp.serve(listenerTo("a", "ra"), listenerTo("b", "rb"), listenerTo("c", "rc"), routesTo("ra", "x"), routesTo("rb", "x"), routesTo("rc", "y"),
			clusterTo("x", "x"), clusterTo("y", "y"), endpointsAt("x", 1), endpointsAt("y", 1))
		seen := map[string]int{}
		for _, target := range []string{"a", "b", "c"} {
			h.watch(target).must(t)
			seen[target] = len(h.c.view().Events(target, target))
		}
		cp.serve(endpointsAt("x", 2))
		for target, want := range map[string]int{"a": 2, "b": 2, "c": 0} {
			if got := h.kinds(target, seen[target]); len(got) != want {
				t.Errorf("%s: %q, want %d events", target, got, want)
			}
		}
	})
}

// TestJournalBound checks that long names and versions are truncated, and that the original strings
// are not kept.
func TestJournalBound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		h.watch("svc")
		long := strings.Repeat("x", 1<<20)
		name := long[:maxName]
		cp.send(lds, long, listenerTo("svc", name))
		cp.send(rds, long, routesTo(name, "c"))
		events := h.c.view().Events("svc", "svc")
		if len(events) != 3 {
			t.Fatalf("events = %v", events)
		}
		for _, e := range events {
			if n := len(e.Resource) + len(e.Version) + len(e.Error); n > 2*1100 {
				t.Errorf("%v of %d bytes", e.Kind, n)
			}
		}
	})
}
