// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/lbpolicy"
)

// TestFlowControl checks that the client does not read from a server while the watchers are busy
// with its previous responses (T-XDS-14), within reason.
func TestFlowControl(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := serving(t, Options{})
		before := cp.count(eds)
		w.mu.Lock()
		w.block = make(chan struct{})
		w.mu.Unlock()
		cp.send(eds, "0", endpointsAt("svc", 100))
		// Other types go on while the watcher is busy.
		cp.send(cds, "x", clusterTo("svc", "svc"))
		if req := cp.last(cds); req.VersionInfo != "x" {
			t.Errorf("CDS waits for a watcher of EDS: %v", req)
		}
		for i := range 4 {
			cp.send(eds, fmt.Sprint(1+i), endpointsAt("svc", uint16(101+i)))
		}
		if n := cp.count(eds) - before; n != 1 {
			t.Errorf("%d responses handled while the watcher is busy, want 1", n)
		}
		// A watcher that does not return does not stop the server for ever.
		advance(2 * maxWatcherWait)
		if n := cp.count(eds) - before; n != 2 {
			t.Errorf("%d responses handled after %v, want maxWatcherWait and the pause after it to have an end", n, 2*maxWatcherWait)
		}
		advance(6 * maxWatcherWait)
		block := w.block
		w.mu.Lock()
		w.block = nil
		w.mu.Unlock()
		close(block)
		w.serves(t, "svc", "svc 104")
		if w.got().updates != 3 {
			t.Errorf("%d updates, want 3: the first, the one that blocked, and the latest", w.got().updates)
		}
	})
}

// TestRest checks that a server which sends without a pause is not listened to
// without one: responses that take 100 ms each come 200 ms apart (LB-SEC-1).
func TestRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var handled atomic.Int64
		slow := new(lbpolicy.Registry).With("type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin",
			func([]byte, lbpolicy.Nested) (picker.Policy, error) {
				handled.Add(1)
				time.Sleep(100 * time.Millisecond)
				return picker.Policy{Kind: picker.PolicyRoundRobin}, nil
			})
		_, cp, _ := serving(t, Options{Policies: slow})
		advance(time.Minute)
		const responses = 50
		for i := range responses {
			c := clusterTo("svc", "svc")
			c.AltStatName = fmt.Sprint(i)
			testplane.Policies(new(roundrobinv3.RoundRobin))(c)
			cp.send(cds, fmt.Sprint(i), c)
		}
		advance(2 * time.Second)
		if n := handled.Load(); n < 8 || n > 12 {
			t.Errorf("%d responses handled in 2 s, want about 10", n)
		}
	})
}

// TestRestOfWatchers checks that the pause includes the work of watchers, such as compiling routes: if
// that takes 100 ms for each response, they come 200 ms apart.
func TestRestOfWatchers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := serving(t, Options{})
		advance(time.Minute)
		before := w.got().updates
		w.takes = 100 * time.Millisecond
		for i := range 50 {
			cp.send(eds, fmt.Sprint(i), endpointsAt("svc", uint16(100+i)))
		}
		advance(2 * time.Second)
		if n := w.got().updates - before; n < 8 || n > 12 {
			t.Errorf("%d responses applied in 2 s, want about 10", n)
		}
	})
}

// TestForgiven checks that a server which could not be reached when it was last
// needed is not held to be out of reach when it is needed again.
func TestForgiven(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{Linger: -1})
		cp.refuse(errRefused)
		w := h.watch("svc")
		w.fails(t, "connection refused")
		w.cancel()
		advance(10 * time.Minute)
		cp.serve(targetOf("svc", 1)...)
		cp.refuse(nil)
		advance(10 * time.Minute)
		again := h.watch("svc")
		advance(time.Minute)
		if again.must(t); again.got().errs != 0 {
			t.Errorf("%d errors", again.got().errs)
		}
	})
}
