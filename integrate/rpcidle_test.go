// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// The tests of this file are about RPCs that are in an interceptor when the channel becomes
// idle: gRPC does not count them then. The channel has another resolver and LB policy for
// the rest of the RPC.

const shortIdle = 60 * time.Millisecond

func (b *bubble) dialIdle(cfg integrate.Config) *grpc.ClientConn {
	b.t.Helper()
	cc, err := cfg.NewClient("xds:///"+target, append(b.dialer(), grpc.WithIdleTimeout(shortIdle))...)
	return b.closing(cc, err)
}

// slowlyRetried is a route whose retries are the interceptors', with a backoff of more than
// shortIdle.
func slowlyRetried() *routev3.Route {
	r := retried(absent(xdstest.Route("", target), "nobody"), 2)
	r.GetRoute().RetryPolicy.RetryBackOff.BaseInterval = durationpb.New(4 * shortIdle)
	return r
}

// failingOnce returns backends whose next unary RPC fails, whichever gets it, if fail is set.
func (b *bubble) failingOnce(n int) (backends []*xdstest.Backend, fail *atomic.Bool) {
	fail = new(atomic.Bool)
	intercept := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		res, err := h(ctx, req)
		if fail.Swap(false) {
			return nil, status.Error(codes.Unavailable, "once")
		}
		return res, err
	}
	return xdstest.NewBackends(b.t, n, xdstest.BackendOptions{Listen: b.net.Listen, Server: []grpc.ServerOption{grpc.UnaryInterceptor(intercept)}}), fail
}

// TestSessionRetryAfterIdle: a retry of an RPC of a session goes to the session's endpoint
// (A55, A31).
func TestSessionRetryAfterIdle(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		backends, fail := b.failingOnce(8)
		control := b.control()
		r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
		r.Routes[0] = xdstest.RouteConfig(target, slowlyRetried())
		r.Listeners[0] = xdstest.Listener(target, target, httpFilter(t, "session", sticky(t, "")))
		set(t, control, r)
		cc := b.dialIdle(b.config(control))
		host, cookie := inSession(t, cc, "")
		for range 6 {
			fail.Store(true)
			if got, next := inSession(t, cc, cookie); got != host || next != "" || fail.Load() {
				t.Errorf("an RPC of the session is answered by %s with cookie %q, want %s and no new cookie", got, next, host)
			}
		}
	})
}

// TestFaultDelayBeforeRetries: an RPC that a fault delays is retried by the policy of its route.
func TestFaultDelayBeforeRetries(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		backends, control := b.backends(1), b.control()
		r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
		r.Routes[0] = xdstest.RouteConfig(target, retried(absent(xdstest.Route("", target), "nobody"), 2))
		r.Listeners[0] = xdstest.Listener(target, target, httpFilter(t, "fault", &faultv3.HTTPFault{Delay: &faultcommonv3.FaultDelay{
			FaultDelaySecifier: &faultcommonv3.FaultDelay_FixedDelay{FixedDelay: durationpb.New(4 * shortIdle)},
			Percentage:         &typev3.FractionalPercent{Numerator: 100},
		}}))
		set(t, control, r)
		cc := b.dialIdle(b.config(control))
		if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		backends[0].Fail(codes.Unavailable)
		before := backends[0].Calls()
		_, err := call(t, cc)
		if n := backends[0].Calls() - before; n != 3 || status.Code(err) != codes.Unavailable {
			t.Errorf("%d attempts and %v, want 3 and UNAVAILABLE", n, err)
		}
	})
}

// TestFirstRPCAcrossIdle: an RPC that waits for the first configuration gets it, though the
// channel becomes idle every few milliseconds and the client lingers for nothing.
func TestFirstRPCAcrossIdle(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		backends, control := b.backends(1), b.control()
		set(t, control, xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)}))
		cfg, dialer := b.config(control), b.net.Dialer("control")
		cfg.ControlPlaneDialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			select {
			case <-time.After(5 * shortIdle):
				return dialer(ctx, addr)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})}
		begin := time.Now()
		_, err := call(t, b.dialIdle(cfg))
		if took := time.Since(begin); err != nil || took > 7*shortIdle {
			t.Errorf("the RPC ends after %v with %v, want success after %v", took, err, 5*shortIdle)
		}
	})
}
