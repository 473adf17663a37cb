// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// TestNoControlPlane checks that a target without a control plane fails at
// once, with everything needed to find out why (T-XDS-18), and recovers.
func TestNoControlPlane(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		cp.refuse(errRefused)
		start := time.Now()
		w := h.watch("svc")
		w.fails(t, "passthrough:///cp", `Listener resource "svc"`, "node-1", "connection refused")
		if d := time.Since(start); d > 0 {
			t.Errorf("the error took %v", d)
		}
		cp.serve(targetOf("svc", 1)...)
		cp.refuse(nil)
		advance(5 * time.Second)
		w.must(t)
	})
}

// TestSilentAddress is TestNoControlPlane for a server that does not even
// refuse: the error comes after ConnectFailureAfter, while the attempt goes on.
func TestSilentAddress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		cp.Hang()
		start := time.Now()
		w := h.watch("svc")
		advance(time.Second)
		w.fails(t, "passthrough:///cp", `Listener resource "svc"`, "node-1", "not connected after 1s", "CONNECTING")
		if d := time.Since(start); d != time.Second {
			t.Errorf("the error took %v", d)
		}
		cp.serve(targetOf("svc", 1)...)
		cp.refuse(nil)
		advance(30 * time.Second)
		w.must(t)
	})
}

// TestOutage checks that an unreachable control plane, even for an hour, removes no resources, and
// that its responses are applied when it is back (A57).
func TestOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := serving(t, Options{})
		cp.refuse(errRefused)
		advance(time.Hour)
		if w.got().errs != 0 || w.got().updates != 1 {
			t.Errorf("%d errors and %d updates, want none and 1", w.got().errs, w.got().updates)
		}
		late := h.watch("late")
		late.fails(t, `"late"`, "refused")
		if n := w.got().updates; n != 1 {
			t.Errorf("%d updates for a healthy target, want 1", n)
		}

		cp.serve(endpointsAt("svc", 2))
		cp.refuse(nil)
		advance(5 * time.Minute)
		w.serves(t, "svc", "svc 2")
	})
}

// TestReturn checks that there is a stream as soon as there is a connection: the two backoffs, that of the channel and that of
// the stream, do not add up.
func TestReturn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, _ := serving(t, Options{})
		connected := func() bool {
			return cp.Conns() > 0
		}
		const within = time.Second
		for i := range 5 {
			if i >= 2 {
				h.watch(fmt.Sprint("another", i))
			}
			cp.refuse(errRefused)
			advance(time.Hour)
			n := cp.opened()
			cp.refuse(nil)
			for !connected() {
				advance(100 * time.Millisecond)
			}
			advance(within)
			if cp.opened() == n {
				t.Fatalf("connected for %v, and there is no stream", within)
			}
		}
	})
}

// TestHangUpAfterResponse checks that a stream may end once something was said
// on it: watchers are not told (A57, T-XDS-8).
func TestHangUpAfterResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		w := h.watch("svc")
		cp.send(lds, "1", listenerTo("svc", "r"))
		cp.hangUp(errors.New("going away"))
		if w.got().errs != 0 {
			t.Errorf("error %v", w.got().err)
		}
		advance(3 * time.Second)
		cp.asked(rds, "r")
		if cp.opened() != 2 {
			t.Errorf("%d streams, want 2", cp.opened())
		}
		// This one ends without a response.
		cp.hangUp(errors.New("overloaded"))
		w.fails(t, `RouteConfiguration resource "r"`, "overloaded")
	})
}

// TestRespondAndDie checks that a server that ends each stream after a response
// sees no more than one stream in each base interval (T-XDS-8).
func TestRespondAndDie(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		h.watch("svc")
		const d = 100 * time.Second
		for end := time.Now().Add(d); time.Now().Before(end); {
			if s := cp.current(); s != nil {
				cp.send(lds, "1", listenerTo("svc", "r"))
				cp.hangUp(errors.New("crashed"))
			}
			advance(50 * time.Millisecond)
		}
		if n := cp.opened(); n > 101 || n < 30 {
			t.Errorf("%d streams in %v, want one every 1 to 2 seconds", n, d)
		}
	})
}

// TestResourceTimer checks the resource timer (A57, T-XDS-7, A88): it starts when the resource is
// requested from a connected server, restarts on each stream, and applies only to resources that
// were never received; a late resource is accepted.
func TestResourceTimer(t *testing.T) {
	for _, tt := range []struct {
		feature string
		timeout time.Duration
		state   State
	}{
		{"", 15 * time.Second, DoesNotExist},
		{"resource_timer_is_transient_error", 30 * time.Second, TimedOut},
	} {
		t.Run(tt.feature, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, cp := only(t, Options{}, tt.feature)
				cp.Hang()
				w := h.watch("svc")
				advance(10 * time.Second) // not connected: no timer
				cp.refuse(nil)
				for cp.current() == nil {
					advance(100 * time.Millisecond)
				}
				advance(tt.timeout / 2)
				cp.hangUp(errors.New("going away")) // the timer starts over
				for cp.current() == nil {
					advance(10 * time.Millisecond)
				}
				start := time.Now()
				errs := w.got().errs
				advance(tt.timeout - time.Second)
				if w.got().errs != errs {
					t.Fatalf("after %v: %v", time.Since(start), w.got().err)
				}
				advance(time.Second)
				w.fails(t, `Listener resource "svc" not found`, "within "+tt.timeout.String(), "node-1",
					"no Listener response on this stream") // T-XDS-17
				if s := statusOf(h.c, lds, "svc"); s.State != tt.state {
					t.Errorf("state = %v, want %v", s.State, tt.state)
				}
				cp.serve(targetOf("svc", 1)...)
				cp.send(lds, "1", listenerTo("svc", "svc"))
				w.must(t)
				// Nothing is timed that is in the cache.
				cp.hangUp(errors.New("going away"))
				advance(time.Hour)
				if w.got().config == nil {
					t.Errorf("error %v", w.got().err)
				}
			})
		})
	}
}

// TestHint checks that the hint of T-XDS-17 is given only where it applies.
func TestHint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		cp.serve(listenerTo("there", "r"))
		h.watch("there")
		w := h.watch("svc")
		advance(16 * time.Second)
		w.fails(t, "not found")
		if strings.Contains(w.got().err.Error(), "at all") {
			t.Errorf("error %q, but there was a response", w.got().err)
		}
	})
}

// TestDeletion checks the effect of a resource's absence from a response (T-XDS-6, A53, A88), by
// type, for resources that were there before.
func TestDeletion(t *testing.T) {
	const a53, a88 = "ignore_resource_deletion", "fail_on_data_errors"
	for _, tt := range []struct {
		features []string
		opts     Options
		drops    bool
	}{
		{nil, Options{}, false},
		{[]string{a53}, Options{}, false},
		{[]string{a88}, Options{}, true},
		{[]string{a88, a53}, Options{}, true},
		{nil, Options{TargetOptions: TargetOptions{DropDeleted: true}}, true},
		{[]string{a53}, Options{TargetOptions: TargetOptions{DropDeleted: true}}, false},
		{[]string{a88}, Options{TargetOptions: TargetOptions{DropDeleted: true}}, true},
	} {
		for _, typ := range []resource.Type{lds, rds, cds, eds} {
			t.Run(fmt.Sprint(typ, tt.features, tt.opts.DropDeleted), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					h, cp, w := serving(t, tt.opts, tt.features...)
					cp.send(typ, "empty")
					full := typ == lds || typ == cds
					drops := full && tt.drops
					switch {
					case !drops:
						w.serves(t, "svc", "svc 1")
						if note := w.cluster(t, "svc").Leaves[0].ResolutionNote; (note != nil) != (typ == cds) {
							t.Errorf("note = %v", note)
						}
					case typ == lds:
						w.fails(t, `resource "svc" of type "ListenerResource" has been removed`, "node-1")
					default:
						if err := w.cluster(t, "svc").Err; err == nil || !strings.Contains(err.Error(), "has been removed") {
							t.Errorf("cluster error = %v, want one with \"removed\"", err)
						}
					}
					want := Acked
					if full {
						want = DoesNotExist
					}
					if s := statusOf(h.c, typ, "svc"); s.State != want || (s.Version == "") != drops {
						t.Errorf("status = %+v, want state %v", s, want)
					}
					// It comes back as it was.
					cp.send(typ, "1", targetOf("svc", 1)[typ])
					if c := w.cluster(t, "svc"); ports(c) != "svc 1" || c.Leaves[0].ResolutionNote != nil {
						t.Errorf("cluster = %+v, want it back", c)
					}
				})
			})
		}
	}
}

// TestDeletionByTarget: if targets share a client, the targets with DropDeleted stop using a
// resource that the server deletes, and the other targets continue, in whatever order they are
// watched.
func TestDeletionByTarget(t *testing.T) {
	for _, typ := range []resource.Type{lds, cds} {
		for _, late := range []bool{false, true} { // the target with DropDeleted is watched after the deletion
			t.Run(fmt.Sprint(typ, late), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					h, cp, keeps := serving(t, Options{})
					drops := &recorder{}
					patched := h.watchWith(patchesOf(t, patchOf("svc", useMaglev)), "svc")
					advance(3 * time.Second) // the stream is opened again for the overlay
					watch := func() {
						drops.cancel = h.c.View(nil, "").With(TargetOptions{DropDeleted: true}).Watch("svc", "svc", drops)
					}
					if !late {
						watch()
					}
					synctest.Wait()
					cp.send(typ, "empty")
					if late {
						keeps.serves(t, "svc", "svc 1")
						if s := statusOf(h.c, typ, "svc"); s.State != DoesNotExist || s.Version == "" {
							t.Errorf("status = %+v, want a deleted resource in use", s)
						}
						watch()
					}
					keeps.serves(t, "svc", "svc 1")
					later := h.watchWith(patchesOf(t, patchOf("svc", useRingHash)), "svc")
					if got := patched.policy(t, "svc"); got != picker.PolicyMaglev {
						t.Errorf("policy %v, want the patched one", got)
					}
					if got := later.policy(t, "svc"); got != picker.PolicyRingHash {
						t.Errorf("policy %v after another patch of the deleted resource, want the patched one", got)
					}
					if typ == lds {
						drops.fails(t, "has been removed")
					} else if err := drops.cluster(t, "svc").Err; err == nil || !strings.Contains(err.Error(), "has been removed") {
						t.Errorf("cluster error = %v, want one with \"removed\"", err)
					}
					if typ == cds {
						if note := keeps.cluster(t, "svc").Leaves[0].ResolutionNote; note == nil {
							t.Error("no note about the deleted cluster in use")
						}
					}
					cp.send(typ, "1", targetOf("svc", 1)[typ])
					for _, w := range []*recorder{keeps, drops, patched, later} {
						if c := w.cluster(t, "svc"); ports(c) != "svc 1" || c.Leaves[0].ResolutionNote != nil {
							t.Errorf("cluster = %+v, want it back", c)
						}
					}
				})
			})
		}
	}
}

// TestNotYetReceived checks that the absence of a resource that was asked for
// only just is no deletion (T-XDS-6).
func TestNotYetReceived(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, _ := serving(t, Options{}, "fail_on_data_errors")
		w := h.watch("new")
		cp.send(lds, "2", listenerTo("svc", "svc")) // computed before it was asked for new
		synctest.Wait()
		if w.got().errs != 0 {
			t.Errorf("error %v", w.got().err)
		}
		cp.serve(targetOf("new", 2)...)
		w.must(t)
	})
}

// TestDataErrors is the rest of A88's table: invalid versions, and errors that
// the server reports in the place of a resource (xRFC TP3), with and without an
// earlier version.
func TestDataErrors(t *testing.T) {
	report := func(cp *fake, code codes.Code) {
		cp.respond(cds, &discoveryv3.DiscoveryResponse{VersionInfo: "e", ResourceErrors: []*discoveryv3.ResourceError{{
			ResourceName: &discoveryv3.ResourceName{Name: "svc"},
			ErrorDetail:  &statuspb.Status{Code: int32(code), Message: "the reason"},
		}}})
	}
	for _, tt := range []struct {
		name  string
		send  func(cp *fake)
		state State
		drops bool // with fail_on_data_errors
		text  string
	}{
		{"invalid", func(cp *fake) { cp.send(cds, "bad", badCluster("svc")) }, Nacked, true, "svc"},
		{"not found", func(cp *fake) { report(cp, codes.NotFound) }, ReceivedError, true, "NotFound: the reason"},
		{"permission denied", func(cp *fake) { report(cp, codes.PermissionDenied) }, ReceivedError, true, "PermissionDenied: the reason"},
		{"internal", func(cp *fake) { report(cp, codes.Internal) }, ReceivedError, false, "Internal: the reason"},
	} {
		for _, feature := range []string{"", "fail_on_data_errors"} {
			t.Run(tt.name+"/cached/"+feature, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					h, cp, w := serving(t, Options{}, feature)
					tt.send(cp)
					c := w.cluster(t, "svc")
					if tt.drops && feature != "" {
						if c.Err == nil || !strings.Contains(c.Err.Error(), tt.text) {
							t.Errorf("cluster error = %v, want %q", c.Err, tt.text)
						}
					} else if ports(c) != "svc 1" || c.Leaves[0].ResolutionNote == nil || !strings.Contains(c.Leaves[0].ResolutionNote.Error(), tt.text) {
						t.Errorf("cluster = %q with %v, want the last version and a note with %q", ports(c), c.Leaves, tt.text)
					}
					if s := statusOf(h.c, cds, "svc"); s.State != tt.state {
						t.Errorf("state = %v, want %v", s.State, tt.state)
					}
				})
			})
			t.Run(tt.name+"/uncached/"+feature, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					h, cp := only(t, Options{}, feature)
					w := h.watch("svc")
					cp.send(lds, "1", listenerTo("svc", "r"))
					cp.send(rds, "1", routesTo("r", "svc"))
					tt.send(cp)
					if err := w.cluster(t, "svc").Err; err == nil || !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), "node-1") {
						t.Errorf("cluster error = %v, want %q and the node", err, tt.text)
					}
					advance(time.Minute) // the timer must not run any more
					if s := statusOf(h.c, cds, "svc"); s.State != tt.state {
						t.Errorf("state = %v, want %v", s.State, tt.state)
					}
				})
			})
		}
	}
}

// TestBadChannel checks that an error of the channel itself is reported.
func TestBadChannel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, Options{}, []string{strings.Replace(serverDoc("cp"), "passthrough:///cp", "nosuchscheme:///\\u0000", 1)}, "")
		w := h.watch("svc")
		w.fails(t, "node-1", "svc")
	})
}
