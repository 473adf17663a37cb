// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	sessionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	cookiev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/type/http/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// sticky is stateful session affinity by cookie "s" for RPCs under a path.
func sticky(t testing.TB, path string) *sessionv3.StatefulSession {
	return &sessionv3.StatefulSession{SessionState: &corev3.TypedExtensionConfig{
		Name: "cookie",
		TypedConfig: anyOf(t, &cookiev3.CookieBasedSessionState{
			Cookie: &httpv3.Cookie{Name: "s", Path: path, Ttl: durationpb.New(2 * time.Minute)},
		}),
	}}
}

// inSession makes an RPC with a cookie, if that is not empty, and returns the
// backend that answered and the cookie that the response sets, if any.
func inSession(t testing.TB, cc *grpc.ClientConn, cookie string) (backend, next string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if cookie != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "cookie", "other=1; s="+cookie)
	}
	var header metadata.MD
	res, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{}, grpc.Header(&header))
	kit.Must(t, err)
	return res.GetHostname(), cookieOf(t, header)
}

func cookieOf(t testing.TB, header metadata.MD) string {
	t.Helper()
	lines := header.Get("set-cookie")
	if len(lines) == 0 {
		return ""
	}
	c, err := http.ParseSetCookie(lines[0])
	if err != nil || len(lines) > 1 || c.Name != "s" || c.Path != "/" || c.MaxAge != 120 {
		t.Errorf("set-cookie %q: %v", lines, err)
		return ""
	}
	return c.Value
}

// statefulService is a cluster whose sessions may stay with endpoints that drain,
// or may not.
func statefulService(t testing.TB, draining bool, backends []*xdstest.Backend, drained ...int) xdstest.Resources {
	endpoints := xdstest.BackendEndpoints(backends...)
	for _, i := range drained {
		endpoints[i].Health = corev3.HealthStatus_DRAINING
	}
	r := xdstest.Service(target, xdstest.Locality{Endpoints: endpoints})
	r.Listeners[0] = xdstest.Listener(target, target, httpFilter(t, "session", sticky(t, "")))
	if draining {
		r.Clusters[0].CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{OverrideHostStatus: &corev3.HealthStatusSet{
			Statuses: []corev3.HealthStatus{corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_HEALTHY, corev3.HealthStatus_DRAINING},
		}}
	}
	return r
}

// TestSessionAffinity: the first response of a session sets a cookie that names
// the backend; RPCs with the cookie go to that one, and get no other cookie; RPCs
// with a cookie that cannot be read go anywhere, and get one (A55).
func TestSessionAffinity(t *testing.T) {
	backends, control := start(t, 4)
	set(t, control, statefulService(t, false, backends))
	cc := dial(t, control.Bootstrap("n"))
	seen := map[string]bool{}
	for i := 0; i < 8 || len(seen) < 2 && i < 10_000; i++ {
		backend, cookie := inSession(t, cc, "")
		text, err := base64.StdEncoding.DecodeString(cookie)
		if want := backend + ";cluster:" + target; err != nil || string(text) != want {
			t.Fatalf("cookie %q: %q, %v; want %q", cookie, text, err, want)
		}
		for range 8 {
			if again, next := inSession(t, cc, cookie); again != backend || next != "" {
				t.Errorf("an RPC of the session with %s went to %s and got cookie %q", backend, again, next)
			}
		}
		seen[backend] = true
	}
	if len(seen) < 2 {
		t.Errorf("all sessions are with %v", seen)
	}
	unknown := base64.StdEncoding.EncodeToString([]byte("192.0.2.1:80;cluster:" + target))
	for _, bad := range []string{"x", base64.StdEncoding.EncodeToString([]byte("here;cluster:x")), unknown} {
		if _, next := inSession(t, cc, bad); next == "" {
			t.Errorf("cookie %q is not replaced", bad)
		}
	}
	backend, cookie := inSession(t, cc, "")
	ctx := minute(t)
	for _, known := range []bool{false, true} {
		if known {
			ctx = metadata.AppendToOutgoingContext(ctx, "cookie", "s="+cookie)
		}
		stream, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx)
		kit.Must(t, err)
		header, err := stream.Header()
		kit.Must(t, err)
		if next := cookieOf(t, header); (next == "") != known {
			t.Errorf("a stream, in a session: %v, gets cookie %q", known, next)
		}
		if to := header.Get("xdstest-backend"); known && to[0] != backend {
			t.Errorf("a stream of the session with %s went to %s", backend, to)
		}
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
	}
}

// TestSessionDraining: an endpoint that drains gets only RPCs of its sessions, and only if
// override_host_status includes DRAINING; otherwise they get another endpoint and its cookie. So
// they do when it is removed (A55, A27-CLA-8).
func TestSessionDraining(t *testing.T) {
	for _, draining := range []bool{true, false} {
		backends, control := start(t, 2)
		set(t, control, statefulService(t, draining, backends))
		cc := dial(t, control.Bootstrap("n"))
		first := backends[0].Addr().String()
		var cookie string
		kit.WaitFor(t, "a session at the first backend", func() bool {
			backend, next := inSession(t, cc, "")
			cookie = next
			return backend == first
		})
		set(t, control, statefulService(t, draining, backends, 0))
		kit.WaitFor(t, "the draining endpoint", func() bool { return drains(t, cc) })
		for range 8 {
			if backend, _ := inSession(t, cc, ""); backend == first {
				t.Error("an RPC without session went to an endpoint that drains")
			}
			if backend, next := inSession(t, cc, cookie); (backend == first) != draining || (next == "") != draining {
				t.Errorf("draining %v: an RPC of the session went to %s, want %s; cookie %q", draining, backend, first, next)
			}
		}
		set(t, control, statefulService(t, draining, backends[1:]))
		kit.WaitFor(t, "a session at another backend", func() bool {
			backend, next := inSession(t, cc, cookie)
			return backend != first && next != ""
		})
	}
}

// TestSessionRoutes: the session's cluster comes before the draw between weighted
// clusters (A60); routes can do without sessions; a cookie is for its path only.
func TestSessionRoutes(t *testing.T) {
	backends, control := start(t, 2)
	split := testplane.WeightedRoute("", testplane.Weighted{Cluster: "a", Weight: 1}, testplane.Weighted{Cluster: "b", Weight: 1})
	nodes := 0
	serve := func(path string, r *routev3.Route) *grpc.ClientConn {
		res := clusters(backends, nil, r)
		res.Listeners[0] = xdstest.Listener(target, target, httpFilter(t, "session", sticky(t, path)))
		set(t, control, res)
		nodes++ // another XdsClient, which has not received the earlier resources
		return dial(t, control.Bootstrap(fmt.Sprint(nodes)))
	}
	cc := serve("", split)
	clustersSeen := map[bool]bool{}
	for i := 0; i < 20 || len(clustersSeen) < 2 && i < 100; i++ {
		backend, cookie := inSession(t, cc, "")
		text, _ := base64.StdEncoding.DecodeString(cookie)
		inA := strings.HasSuffix(string(text), ";cluster:a")
		clustersSeen[inA] = true
		for range 8 {
			if again, next := inSession(t, cc, cookie); again != backend || next != "" {
				t.Errorf("an RPC of the session %q went to %s and got cookie %q", text, again, next)
			}
		}
	}
	if len(clustersSeen) != 2 {
		t.Error("all sessions are with one cluster")
	}
	off := xdstest.Route("", "a")
	off.TypedPerFilterConfig = map[string]*anypb.Any{"session": anyOf(t, &sessionv3.StatefulSessionPerRoute{
		Override: &sessionv3.StatefulSessionPerRoute_Disabled{Disabled: true},
	})}
	if _, cookie := inSession(t, serve("", off), ""); cookie != "" {
		t.Errorf("a route without sessions sets cookie %q", cookie)
	}
	if _, cookie := inSession(t, serve("/grpc.testing.Test", xdstest.Route("", "a")), ""); cookie != "" {
		t.Errorf("a cookie of another path is set: %q", cookie)
	}
}

// drains reports whether picks go by a configuration in which an endpoint drains.
func drains(t *testing.T, cc *grpc.ClientConn) bool {
	if statusOf(t, cc).Clusters[0].Leaves[0].Priorities[0].Endpoints.Draining == 0 {
		return false
	}
	x, err := integrate.Explain(t.Context(), cc, testgrpc.TestService_UnaryCall_FullMethodName)
	return err == nil && !x.Pending
}

// TestSessionHedged: the session of an RPC that is hedged is with the endpoint that has answered
// it, whichever was picked last (A55).
func TestSessionHedged(t *testing.T) { inBubble(t, checkSessionHedged) }

func checkSessionHedged(t *testing.T, b *bubble) {
	backends, control := b.backends(2), b.control()
	r := statefulService(t, false, backends)
	r.Routes[0] = xdstest.RouteConfig(target, hedged(xdstest.Route("", target), 20*time.Millisecond))
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
