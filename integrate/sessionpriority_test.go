// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// inPriorities serves two backends, each in a priority of its own, with sessions.
func inPriorities(t *testing.T, control *xdstest.Server, first, second *xdstest.Backend) {
	t.Helper()
	r := xdstest.Service(target,
		xdstest.Locality{Place: xdstest.Place{Zone: "a"}, Endpoints: xdstest.BackendEndpoints(first)},
		xdstest.Locality{Place: xdstest.Place{Zone: "b"}, Endpoints: xdstest.BackendEndpoints(second), Priority: 1})
	r.Listeners[0] = xdstest.Listener(target, target, httpFilter(t, "session", sticky(t, "")))
	set(t, control, r)
}

// TestSessionPriorities: a session stays with its endpoint as long as that is connected, also
// while its priority is not in use: because a higher one has come back, or because the endpoint
// has moved to a lower one (A75).
func TestSessionPriorities(t *testing.T) {
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	control := xdstest.New(t, xdstest.Options{})
	high, low := backends[0], backends[1]
	inPriorities(t, control, high, low)
	high.Stop()
	cc := dial(t, control.Bootstrap("n"))
	if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	backend, cookie := inSession(t, cc, "")
	if backend != low.Addr().String() || cookie == "" {
		t.Fatalf("an RPC went to %s, and its session is %q", backend, cookie)
	}
	check := func(what string, others *xdstest.Backend) {
		t.Helper()
		kit.WaitFor(t, "RPCs at the other priority", func() bool { b, _ := inSession(t, cc, ""); return b == others.Addr().String() })
		for range 4 {
			if backend, next := inSession(t, cc, cookie); backend != low.Addr().String() || next != "" {
				t.Errorf("%s: an RPC of the session went to %s, cookie %q", what, backend, next)
			}
		}
		if s := statusOf(t, cc).Clusters[0]; s.Priority != 0 || s.Leaves[0].InFlight != 0 {
			t.Errorf("%s: %+v", what, s)
		}
	}
	kit.Must(t, high.Start())
	cc.ResetConnectBackoff()
	check("a higher priority is back", high)
	inPriorities(t, control, low, high)
	check("its priority is the first", low)
	inPriorities(t, control, high, low)
	check("its priority is the second", high)
	low.Stop()
	kit.WaitFor(t, "the loss of the second priority's connection", func() bool { return statusOf(t, cc).Clusters[0].Leaves[0].Priorities[1].Endpoints.Ready == 0 })
	kit.WaitFor(t, "a session at the first priority", func() bool { b, next := inSession(t, cc, cookie); return b == high.Addr().String() && next != "" })
}

// TestSessionRetired: a session moves on when the connection of its endpoint is closed, since
// its priority was not in use for Config.RetireAfter.
func TestSessionRetired(t *testing.T) {
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	control := xdstest.New(t, xdstest.Options{})
	high, low := backends[0], backends[1]
	inPriorities(t, control, high, low)
	high.Stop()
	cc := dialConfig(t, integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1, RetireAfter: 50 * time.Millisecond})
	if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	backend, cookie := inSession(t, cc, "")
	if backend != low.Addr().String() {
		t.Fatalf("an RPC went to %s", backend)
	}
	kit.Must(t, high.Start())
	cc.ResetConnectBackoff()
	kit.WaitFor(t, "the second priority to be dormant", func() bool { return statusOf(t, cc).Clusters[0].Leaves[0].Priorities[1].Phase == "dormant" })
	kit.WaitFor(t, "the end of its connection", func() bool { return low.Connections() == 0 })
	if backend, next := inSession(t, cc, cookie); backend != high.Addr().String() || next == "" {
		t.Errorf("an RPC of the session went to %s, cookie %q", backend, next)
	}
}
