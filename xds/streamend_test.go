// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestResponseAtEndOfStream: a response counts though the server closes the stream right after
// it, however long it takes to decode.
func TestResponseAtEndOfStream(t *testing.T) {
	resp := &discoveryv3.DiscoveryResponse{TypeUrl: lds.URL(), VersionInfo: "1", Nonce: "1"}
	for i := range 2000 {
		resp.Resources = append(resp.Resources, wrap(xdstest.Listener(fmt.Sprint("other-", i), "r")))
	}
	resp.Resources = append(resp.Resources, wrap(xdstest.Listener("svc", "r")))
	for range 10 {
		bubble(t, func(t *testing.T) {
			h, cp := only(t, Options{})
			h.watch("svc")
			s := cp.must()
			s.Respond(resp)
			s.Close(nil)
			if synctest.Wait(); statusOf(h.c, lds, "svc").State != Acked {
				t.Error("the response was dropped")
			}
		})
	}
}

// TestDisplacedStream checks that a stream that ends in order as soon as it is open, which Istio's
// agent does when another client opens one, is repeated once, and that the backoff grows although
// the second stream has a response.
func TestDisplacedStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		h.watch("svc")
		attempts := 0
		for begin := time.Now(); time.Since(begin) < 10*time.Minute; advance(50 * time.Millisecond) {
			if !cp.connected() {
				continue
			}
			attempts++
			cp.hangUp(nil)
			if !cp.connected() {
				t.Fatalf("attempt %d: no second stream", attempts)
			}
			cp.send(lds, "1", listenerTo("svc", "r"))
			advance(time.Second) // until the other client returns
			cp.hangUp(nil)
			if cp.connected() {
				t.Fatalf("attempt %d: a third stream", attempts)
			}
		}
		if attempts < 6 || attempts > 60 {
			t.Errorf("%d attempts in 10 minutes, want a growing backoff", attempts)
		}
		// The other client is gone.
		for !cp.connected() {
			advance(50 * time.Millisecond)
		}
		cp.hangUp(nil)
		cp.send(lds, "1", listenerTo("svc", "r"))
		advance(30 * time.Minute)
		cp.hangUp(nil)
		if advance(time.Second); !cp.connected() {
			t.Error("not connected a second after the end of a long stream")
		}
	})
}

// TestDisplacedTwice checks that a stream is repeated only once, and only if it ended in order.
func TestDisplacedTwice(t *testing.T) {
	for _, tt := range []struct {
		first, second error
		streams       int
	}{{nil, nil, 2}, {nil, errors.New("overloaded"), 2}, {errors.New("overloaded"), nil, 1}} {
		bubble(t, func(t *testing.T) {
			h, cp := only(t, Options{})
			w := h.watch("svc")
			cp.hangUp(tt.first)
			cp.hangUp(tt.second)
			if n := cp.opened(); n != tt.streams {
				t.Errorf("%v, %v: %d streams, want %d", tt.first, tt.second, n, tt.streams)
			}
			w.fails(t, "svc")
		})
	}
}

// countdown is a context that ends when Err has been called some times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestSplittingStops checks that a client that is closed does not read all resources of a response
// with many small ones.
func TestSplittingStops(t *testing.T) {
	d := newDirect(t)
	many := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds.URL()}
	all := &discoveryv3.DiscoveryResponse{TypeUrl: lds.URL()}
	for i := range 5000 {
		l := wrap(xdstest.Listener(fmt.Sprint("l", i), "r"))
		many.Resources = append(many.Resources, &discoveryv3.Resource{Version: "1", Resource: l})
		all.Resources = append(all.Resources, l)
	}
	for _, msg := range []proto.Message{many, all} {
		r := response{ctx: &countdown{t.Context(), 1}, t: &d.s.types[lds], msg: arrived(msg)}
		if r.split(); len(r.unwanted) != 1024 {
			t.Errorf("%T: read %d resources after the end, want 1024", msg, len(r.unwanted))
		}
	}
}

// TestDecodingStops: a client that is closed does not decode a large resource to its end, and the
// decoded part has no effect.
func TestDecodingStops(t *testing.T) {
	d := newDirect(t)
	d.speak("delta")
	d.requests()
	routes := xdstest.RouteConfig("r")
	for range 1000 {
		routes.VirtualHosts[0].Routes = append(routes.VirtualHosts[0].Routes, xdstest.Route("/", "c"))
	}
	ctx := &countdown{t.Context(), 100}
	r := response{ctx: ctx, t: &d.s.types[lds], msg: deltaResponse{&discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds.URL(), Nonce: "1", Resources: []*discoveryv3.Resource{
		{Name: "svc", Version: "1", Resource: wrap(testplane.InlineListener("svc", routes))},
	}}}}
	r.handle()
	if state := statusOf(d.c, lds, "svc").State; state == Acked || state == Nacked {
		t.Errorf("the state is %v after half of a resource", state)
	}
	if ctx.left < -5 {
		t.Errorf("asked %d times after the end", -ctx.left)
	}
}
