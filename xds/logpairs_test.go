// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"log/slog"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/bench/kit"
)

// logIncidents cause and end the conditions of the control plane that are logged, by the message
// that begins each.
var logIncidents = map[string]struct {
	texts      []string // of both lines
	begin, end func(h *harness, one *fake)
}{
	"xdslb: an xDS server cannot be reached": {
		[]string{"server=passthrough:///one"},
		func(_ *harness, one *fake) { one.refuse(errRefused); one.hangUp(nil) },
		func(_ *harness, one *fake) { one.refuse(nil) },
	},
	"xdslb: falling back to the next xDS server": {
		[]string{"server=passthrough:///one"},
		func(h *harness, one *fake) {
			one.refuse(errRefused)
			one.hangUp(nil)
			h.servers["two"].serve(targetOf("new", 2)...)
			h.watch("new")
		},
		func(_ *harness, one *fake) { one.refuse(nil) },
	},
	"xdslb: rejecting invalid resources of an xDS server (NACK)": {
		[]string{"server=passthrough:///one", "type=Cluster"},
		func(_ *harness, one *fake) { one.send(cds, "7", badCluster("svc")) },
		func(_ *harness, one *fake) { one.send(cds, "8", clusterTo("svc", "svc")) },
	},
	"xdslb: resource not received from xDS server": {
		[]string{"server=passthrough:///one", "type=Listener", "resource=late"},
		func(h *harness, _ *fake) { h.watch("late") },
		func(_ *harness, one *fake) { one.serve(targetOf("late", 2)...) },
	},
	"xdslb: xDS server deleted a resource": {
		[]string{"server=passthrough:///one", "type=Listener", "resource=svc"},
		func(_ *harness, one *fake) { one.send(lds, "8") },
		func(_ *harness, one *fake) { one.send(lds, "9", listenerTo("svc", "svc")) },
	},
	"xdslb: xDS server reports an error for a resource": {
		[]string{"server=passthrough:///one", "type=Cluster", "resource=svc"},
		func(_ *harness, one *fake) {
			one.respond(cds, &discoveryv3.DiscoveryResponse{VersionInfo: "e", ResourceErrors: []*discoveryv3.ResourceError{{
				ResourceName: &discoveryv3.ResourceName{Name: "svc"},
				ErrorDetail:  &statuspb.Status{Code: int32(codes.NotFound), Message: "the reason"},
			}}})
		},
		func(_ *harness, one *fake) { one.send(cds, "8", clusterTo("svc", "svc")) },
	},
	"xdslb: resource TTL expired": {
		[]string{"server=passthrough:///one", "type=ClusterLoadAssignment", "resource=svc"},
		func(_ *harness, one *fake) { one.sayTTL(eds, "svc", endpointsAt("svc", 2), 10*time.Second) },
		func(_ *harness, one *fake) { one.send(eds, "8", endpointsAt("svc", 2)) },
	},
}

// TestLogUnused checks that the log has the end of a condition of a resource that is not used any more.
func TestLogUnused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		book := &kit.Logs{}
		h, _ := only(t, Options{Linger: -1, Logger: slog.New(book)})
		w := h.watch("late")
		advance(time.Minute)
		w.cancel()
		advance(time.Minute)
		book.WantPair(t, kit.LogPair{Begin: "WARN xdslb: resource not received from xDS server", End: "INFO xdslb: resource no longer used"}, "type=Listener", "resource=late")
	})
}

// TestLogPairs checks that the log has a line for the beginning and the end of each condition of
// the control plane that failures.md lists, and one more of each if it repeats.
func TestLogPairs(t *testing.T) {
	pairs := kit.LogPairs(t, "../integrate/docs/failures.md", "TestLogPairs")
	for message := range logIncidents {
		if _, ok := pairs[message]; !ok {
			t.Errorf("failures.md lacks %q", message)
		}
	}
	for message, pair := range pairs {
		t.Run(message, func(t *testing.T) {
			incident, ok := logIncidents[message]
			if !ok {
				t.Fatal("there is no incident for the row of failures.md")
			}
			bubble(t, func(t *testing.T) {
				h := newHarness(t, Options{Linger: -1}, []string{serverDoc("one"), serverDoc("two")}, "")
				one := h.servers["one"]
				one.serve(targetOf("svc", 1)...)
				h.watch("svc").must(t)
				advance(2 * time.Minute)
				for range 2 {
					book := &kit.Logs{}
					h.c.logger.Store(slog.New(book))
					incident.begin(h, one)
					advance(30 * time.Second)
					if lines := book.With(pair.End); len(lines) > 0 {
						t.Errorf("before the end: %q", lines)
					}
					incident.end(h, one)
					advance(30 * time.Second)
					book.WantPair(t, pair, append(incident.texts, "node=node-1")...)
					advance(10 * time.Minute)
					book.WantPair(t, pair)
					if message == "xdslb: resource not received from xDS server" || message == "xdslb: falling back to the next xDS server" {
						break // the target is watched now
					}
				}
			})
		})
	}
}
