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

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/xds/resource"
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

// These tests are about servers of the incremental variant that have nothing to say.

// TestDeltaSilent: if a server sends nothing after a client has reported the versions it has, the
// client keeps them. If a server sends nothing after a new subscription, it does not have the
// resource, even if the cache does: the resource was deleted while the client was not subscribed.
// Later responses of the server are applied.
func TestDeltaSilent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{Linger: -1, TargetOptions: TargetOptions{DropDeleted: true}}, deltaFeature)
		keep, w := h.watch("keep"), h.watch("svc")
		defer keep.cancel()
		st := cp.mustDelta()
		for _, m := range append(targetOf("svc", 1), listenerTo("keep", "svc")) {
			typ, _ := nameOf(m)
			st.Send(typ.URL(), "1", m)
			advance(time.Millisecond)
		}
		w.must(t)
		cp.hangUp(nil)
		advance(time.Minute)
		if s := h.c.Servers()[0]; !s.Connected || s.Failures != 0 {
			t.Errorf("server %+v after a minute in which it had nothing to say", s)
		}
		w.cancel()
		advance(time.Second)
		w = h.watch("svc")
		advance(14 * time.Second)
		w.serves(t, "svc", "svc 1", "while the server may still answer")
		advance(time.Second)
		w.fails(t, `Listener resource "svc" not found`, "has not sent it within 15s; the version in the cache is from before the latest subscription")
		cp.mustDelta().Send(lds.URL(), "2", listenerTo("svc", "other"))
		advance(time.Second)
		if names := cp.lastDelta(rds.URL()).ResourceNamesSubscribe; !slices.Equal(names, []string{"other"}) {
			t.Errorf("subscribed to %q, want the resources of the new version", names)
		}
		// Now it has to send something, so a server that hangs up without a response is out of reach.
		cp.hangUp(nil)
		advance(10 * time.Second)
		cp.hangUp(nil)
		advance(2 * time.Minute)
		if s := h.c.Servers()[0]; s.Failures == 0 {
			t.Errorf("server %+v, which has hung up without a response", s)
		}
	})
}

// TestDeltaQuietThenAsked: a server that had nothing to send, then receives a new subscription, and
// ends the stream without a response, is unreachable: the client uses the next one (A71).
func TestDeltaQuietThenAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, Options{}, []string{serverDoc("one", deltaFeature), serverDoc("two", deltaFeature)}, "")
		one, two := h.servers["one"], h.servers["two"]
		two.serve(targetOf("new", 2)...)
		h.watch("svc")
		st := one.mustDelta()
		for _, m := range targetOf("svc", 1) {
			typ, _ := nameOf(m)
			st.Send(typ.URL(), "1", m)
			advance(time.Millisecond)
		}
		one.hangUp(nil)
		advance(time.Minute) // the server sends nothing in that time
		w := h.watch("new")
		advance(time.Second)
		one.hangUp(nil)
		advance(10 * time.Millisecond)
		w.must(t)
	})
}

// TestDeltaReconnectBytes: a client that returns with nothing changed sends no more than
// two names and a version for each resource, and gets nothing.
func TestDeltaReconnectBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 300
		h, cp := only(t, Options{}, deltaFeature)
		var names []string
		resources := []proto.Message{listenerTo("svc", "svc")}
		bytes := 0 // of names
		for i := range n {
			name := fmt.Sprintf("outbound|8080||svc-%d", i)
			names, bytes = append(names, name), bytes+len(name)
			resources = append(resources, clusterTo(name, name), endpointsAt(name, 1))
		}
		cp.serve(append(resources, routesTo("svc", names...))...)
		h.watch("svc").must(t)
		cp.hangUp(nil)
		advance(time.Minute)
		st, up := cp.mustDelta(), 0
		for _, url := range []string{lds.URL(), rds.URL(), cds.URL(), eds.URL()} {
			for _, req := range st.Requests(url) {
				up += proto.Size(req)
			}
			if got := st.Stats(url).Responses; got != 0 {
				t.Errorf("%d responses of type %s", got, url)
			}
		}
		const resourcesSent = 2*n + 2
		t.Logf("%d bytes up for each resource, of which %d are its name", up/resourcesSent, bytes/n)
		if most := 2*2*bytes + 20*resourcesSent + 1000; up > most || up/resourcesSent > 100 {
			t.Errorf("%d bytes up for %d resources, want no more than %d, and 100 for each", up, resourcesSent, most)
		}
	})
}

// TestDeltaCut: a server that receives the versions which the client has, and whose streams are cut
// before ResourceTimeout, counts as unreachable, for it has sent nothing. But no resource is
// missing, so the client uses no other server, and the configuration stays.
func TestDeltaCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, Options{}, []string{serverDoc("one", deltaFeature), serverDoc("two", deltaFeature)}, "")
		one, two := h.servers["one"], h.servers["two"]
		one.serve(targetOf("svc", 1)...)
		two.serve(targetOf("svc", 2)...)
		w := h.watch("svc")
		w.must(t)
		for range 20 {
			one.hangUp(errors.New("cut"))
			for range 200 {
				if advance(time.Second); one.connected() {
					break
				}
			}
			advance(10 * time.Second)
		}
		w.serves(t, "svc", "svc 1")
		if n := two.opened(); n != 0 {
			t.Errorf("%d streams to the server after it", n)
		}
		if s := h.c.Servers()[0]; s.Failures == 0 {
			t.Errorf("server %+v", s)
		}
		one.serve(endpointsAt("svc", 3))
		advance(time.Second)
		w.serves(t, "svc", "svc 3")
	})
}

// TestDeltaRequestsFit: requests fit into 4 MiB, gRPC's default limit for a server, however many
// names there are and however many versions the client could claim. After RESOURCE_EXHAUSTED it
// claims none.
func TestDeltaRequestsFit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := servingDelta(t, Options{})
		const clusters = 5_000
		var names []string
		var resources []proto.Message
		for i := range clusters {
			names = append(names, fmt.Sprintf("%s%05d", strings.Repeat("c", 250), i))
			resources = append(resources, clusterTo(names[i], "svc"))
		}
		cp.serve(append(resources, routesTo("svc", names...))...)
		advance(time.Minute)
		w.cluster(t, names[0])
		claims := func() (n int) {
			t.Helper()
			stream, names := cp.mustDelta(), 0
			for typ := range resource.NumTypes {
				names += len(stream.Stats(typ.URL()).Names)
			}
			requests := stream.Requests("") // as many as the server remembers
			for _, req := range requests {
				if size := proto.Size(req); size > maxRequest {
					t.Errorf("a request of %d bytes, with %d names and %d versions", size, len(req.ResourceNamesSubscribe), len(req.InitialResourceVersions))
				}
				n += len(req.InitialResourceVersions)
			}
			if names != clusters+3 {
				t.Errorf("subscribed to %d names in %d requests", names, len(requests))
			}
			return n
		}
		claims()
		cp.hangUp(errRefused)
		advance(time.Minute)
		if n := claims(); n == 0 {
			t.Error("no version is claimed")
		}
	})
}

// TestDeltaExhausted: a client whose first request a server refuses with RESOURCE_EXHAUSTED claims
// no versions in the next one.
func TestDeltaExhausted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, _ := servingDelta(t, Options{})
		claims := func() (n int) {
			for cp.delta() == nil {
				advance(100 * time.Millisecond)
			}
			for _, req := range cp.delta().Requests("") {
				n += len(req.InitialResourceVersions)
			}
			return n
		}
		cp.hangUp(errRefused)
		if n := claims(); n != 4 {
			t.Errorf("%d versions are claimed, want 4", n)
		}
		cp.hangUp(status.Error(codes.ResourceExhausted, "grpc: received message larger than max"))
		if n := claims(); n != 0 {
			t.Errorf("%d versions are claimed after RESOURCE_EXHAUSTED", n)
		}
	})
}
