// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestQuietServerOfMissingCluster: in the incremental variant a server that has received all versions need
// not send anything, also if a route leads to a cluster that does not exist. It counts as reached, and
// after the end of a stream, as with a maximum connection age, the next one follows soon.
func TestQuietServerOfMissingCluster(t *testing.T) {
	for _, features := range [][]string{{deltaFeature}, {deltaFeature, "resource_timer_is_transient_error"}} {
		t.Run(fmt.Sprint(len(features)), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, cp := only(t, Options{}, features...)
				cp.serve(listenerTo("svc", "svc"), routesTo("svc", "gone", "c"), clusterTo("c", "c"), endpointsAt("c", 1))
				w := h.watch("svc")
				advance(time.Minute)
				w.serves(t, "c", "c 1")
				for range 12 {
					advance(5 * time.Minute)
					cp.hangUp(errors.New("max_age"))
					advance(3 * time.Second)
					if !cp.connected() {
						t.Error("no stream 3 s after the end of the previous one")
					}
				}
				advance(time.Minute)
				if s := h.c.Servers()[0]; !s.Connected || s.Failures > 0 {
					t.Errorf("connected %v, %d failures: %v; want a server that was always reached", s.Connected, s.Failures, s.Err)
				}
			})
		})
	}
}

// TestEndpointsDeletedWhileLeft: an assignment that was deleted while no cluster named it, so that the server
// does not send it on the next subscription, stays in use with a note (A57, A88), also if the server
// changes other assignments meanwhile.
func TestEndpointsDeletedWhileLeft(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprint("busy=", busy), func(t *testing.T) {
			bothVariants(t, func(t *testing.T, features ...string) {
				h, cp := only(t, Options{Linger: -1}, features...)
				cp.serve(listenerTo("svc", "svc"), routesTo("svc", "c"), clusterTo("c", "e"), clusterTo("d", "f"), clusterTo("x", "x"), endpointsAt("e", 1), endpointsAt("f", 9), endpointsAt("x", 1))
				w := h.watch("svc")
				w.serves(t, "c", "c 1")
				cp.serve(routesTo("svc", "d", "x"))
				w.serves(t, "d", "d 9")
				cp.Remove(eds.URL(), "e")
				advance(time.Second)
				cp.serve(routesTo("svc", "c", "x"))
				for i := range 60 {
					advance(time.Second)
					if busy {
						cp.serve(endpointsAt("x", uint16(i)))
					}
				}
				c := w.cluster(t, "c")
				if s := statusOf(h.c, eds, "e"); s.State != DoesNotExist || ports(c) != "c 1" || c.Leaves[0].ResolutionNote == nil {
					t.Errorf("endpoints %q, state %v, note %v; the server does not have them", ports(c), s.State, c.Leaves[0].ResolutionNote)
				}
				cp.serve(endpointsAt("e", 5))
				advance(time.Second)
				w.serves(t, "c", "c 5")
				if s := statusOf(h.c, eds, "e"); s.State != Acked {
					t.Errorf("state %v after the return", s.State)
				}
			})
		})
	}
}

// TestEndpointsLeftDuringResponse: a server of state of the world ignores a request that it receives after it
// has sent a response (T-XDS-4). So it may not have noticed that an assignment was left for a moment, and
// need not send it again. The assignment is left for one request before it counts as missing.
func TestEndpointsLeftDuringResponse(t *testing.T) {
	for _, answers := range []bool{true, false} {
		t.Run(fmt.Sprint("answers=", answers), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, cp := only(t, Options{Linger: -1})
				w := h.watch("svc")
				cp.send(lds, "1", listenerTo("svc", "svc"))
				cp.send(rds, "1", routesTo("svc", "c", "x"))
				cp.send(cds, "1", clusterTo("c", "e"), clusterTo("d", "f"), clusterTo("x", "x"))
				cp.send(eds, "1", endpointsAt("e", 1), endpointsAt("x", 1))
				w.serves(t, "c", "c 1")
				cp.send(rds, "2", routesTo("svc", "d", "x"))
				cp.send(cds, "2", clusterTo("c", "e"), clusterTo("d", "f"), clusterTo("x", "x"))
				cp.send(eds, "2", endpointsAt("f", 9))
				w.serves(t, "d", "d 9")
				cp.asked(eds, "f", "x")
				cp.send(rds, "3", routesTo("svc", "c", "x"))
				cp.send(cds, "3", clusterTo("c", "e"), clusterTo("d", "f"), clusterTo("x", "x"))
				cp.asked(eds, "e", "x")
				cp.send(eds, "3", endpointsAt("x", 2)) // was in flight
				before := cp.count(eds)
				advance(16 * time.Second)
				requests := cp.must().Requests(eds.URL())[before:]
				if len(requests) != 2 || fmt.Sprint(requests[0].ResourceNames) != "[x]" || fmt.Sprint(requests[1].ResourceNames) != "[e x]" {
					t.Errorf("requests %v, want one without the assignment and one with it", requests)
				}
				if answers {
					cp.send(eds, "4", endpointsAt("e", 1))
				}
				advance(time.Minute)
				if s := statusOf(h.c, eds, "e"); (s.State == Acked) != answers {
					t.Errorf("state %v", s.State)
				}
				w.serves(t, "c", "c 1")
				if n := cp.count(eds); answers != (n == before+3) || n > before+3 {
					t.Errorf("%d requests more", n-before)
				}
			})
		})
	}
}
