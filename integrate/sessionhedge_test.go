// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestSessionHedged: the session of an RPC that is hedged is with the endpoint that has answered
// it, whichever was picked last (A55).
func TestSessionHedged(t *testing.T) { inBubble(t, checkSessionHedged) }

func checkSessionHedged(t *testing.T, b *bubble) {
	backends, control := b.backends(2), b.control()
	route := retried(xdstest.Route("", target), 1)
	route.GetRoute().RetryPolicy.PerTryTimeout = durationpb.New(20 * time.Millisecond)
	route.GetRoute().HedgePolicy = &routev3.HedgePolicy{HedgeOnPerTryTimeout: true}
	r := statefulService(t, false, backends)
	r.Routes[0] = xdstest.RouteConfig(target, route)
	set(t, control, r)
	cfg := b.config(control)
	cfg.Idempotent = func(string) bool { return true }
	cc := b.dial(cfg)
	first := backends[0].Addr().String()
	var cookie string
	for _, b := range backends {
		kit.WaitFor(t, "a session at each backend", func() bool {
			backend, next := inSession(t, cc, "")
			if backend == first {
				cookie = next
			}
			return backend == b.Addr().String()
		})
	}
	backends[0].SetDelay(200 * time.Millisecond) // is asked first or second, and answers
	backends[1].SetDelay(time.Hour)              // the test does not wait for it
	before := backends[1].Calls()
	for range 6 {
		backend, next := inSession(t, cc, "")
		text, err := base64.StdEncoding.DecodeString(next)
		if backend != first || err != nil || !strings.HasPrefix(string(text), first+";") {
			t.Errorf("%s has answered, and the session is with %q", backend, text)
		}
		if backend, next := inSession(t, cc, cookie); backend != first || next != "" {
			text, _ := base64.StdEncoding.DecodeString(next)
			t.Errorf("%s has answered an RPC of its session, which is with %q now", backend, text)
		}
	}
	if backends[1].Calls() == before {
		t.Error("no RPC was hedged")
	}
}
