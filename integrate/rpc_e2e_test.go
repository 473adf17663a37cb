// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// The tests of this file are about RPCs that interceptors of ours bind to a route,
// among interceptors of the application.

// absent makes a route one for RPCs without a header, which no service config can
// say.
func absent(r *routev3.Route, name string) *routev3.Route {
	r.Match.Headers = append(r.Match.Headers, &routev3.HeaderMatcher{
		Name:                 name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: false},
	})
	return r
}

// retried gives a route that many retries of UNAVAILABLE, with little backoff.
func retried(r *routev3.Route, n uint32) *routev3.Route {
	r.GetRoute().RetryPolicy = &routev3.RetryPolicy{
		RetryOn:      "unavailable",
		NumRetries:   wrapperspb.UInt32(n),
		RetryBackOff: &routev3.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(time.Millisecond)},
	}
	return r
}

// TestHeaderOfApplication: an RPC takes the route of the headers that it is sent
// with, also if an interceptor of the application adds one, wherever that
// interceptor is, and whatever the other routes say of their RPCs (D13).
func TestHeaderOfApplication(t *testing.T) {
	tag := func(ctx context.Context) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "x-tenant", "canary")
	}
	unary := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoker(tag(ctx), method, req, reply, cc, opts...)
	}
	stream := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return streamer(tag(ctx), desc, cc, method, opts...)
	}
	chained := []grpc.DialOption{grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(stream)}
	single := []grpc.DialOption{grpc.WithUnaryInterceptor(unary), grpc.WithStreamInterceptor(stream)}
	creds := grpc.WithTransportCredentials(insecure.NewCredentials())
	ways := map[string]func(cfg integrate.Config) (*grpc.ClientConn, error){
		"NewClient, chained": func(cfg integrate.Config) (*grpc.ClientConn, error) {
			return cfg.NewClient("xds:///"+target, append(chained, creds)...)
		},
		"NewClient, single": func(cfg integrate.Config) (*grpc.ClientConn, error) {
			return cfg.NewClient("xdslb:///"+target, append(single, creds)...)
		},
		"DialOptions last": func(cfg integrate.Config) (*grpc.ClientConn, error) {
			ours, err := integrate.DialOptions(cfg)
			if err != nil {
				return nil, err
			}
			return grpc.NewClient("xds:///"+target, slices.Concat([]grpc.DialOption{creds}, chained, ours)...)
		},
		"DialOptions first": func(cfg integrate.Config) (*grpc.ClientConn, error) {
			ours, err := integrate.DialOptions(cfg)
			if err != nil {
				return nil, err
			}
			return grpc.NewClient("xds:///"+target, slices.Concat(ours, chained, []grpc.DialOption{creds})...)
		},
	}
	for name, open := range ways {
		t.Run(name, func(t *testing.T) {
			backends, control := start(t, 2)
			set(t, control, clusters(backends, nil,
				header(xdstest.Route("", "a"), "x-tenant", "canary"), retried(absent(xdstest.Route("", "b"), "nobody"), 1)))
			cc, err := open(integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1})
			kit.Must(t, err)
			t.Cleanup(func() { _ = cc.Close() })
			ctx := minute(t)
			for range 4 {
				succeed(t, cc)
				s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx)
				kit.Must(t, err)
				if _, err := s.Header(); err != nil {
					t.Fatal(err)
				}
			}
			if a, b := backends[0].Calls(), backends[1].Calls(); a != 8 || b != 0 {
				t.Errorf("of 8 RPCs with x-tenant: canary, the canary got %d and the others' backend %d, want 8 and 0", a, b)
			}
		})
	}
}

// TestNestedRPC: an RPC that an interceptor makes with the context of the RPC it is
// called for takes its own route, on the same channel and on another one.
func TestNestedRPC(t *testing.T) {
	backends, control := start(t, 3)
	set(t, control, clusters(backends, nil,
		header(xdstest.Route("", "c"), "x-inner", "yes"),
		limited(xdstest.Route("/grpc.testing.TestService/UnaryCall", "a"), time.Minute),
		xdstest.Route("/grpc.testing.TestService/EmptyCall", "b")))
	var other *grpc.ClientConn
	token := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if md, _ := metadata.FromOutgoingContext(ctx); method == testgrpc.TestService_UnaryCall_FullMethodName && md.Get("x-inner") == nil {
			inner := metadata.AppendToOutgoingContext(ctx, "x-inner", "yes")
			if _, err := testgrpc.NewTestServiceClient(cc).UnaryCall(inner, &testgrpc.SimpleRequest{}); err != nil {
				return err
			}
			for _, cc := range []*grpc.ClientConn{cc, other} {
				if _, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}); err != nil {
					return err
				}
			}
		}
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	cc := dial(t, control.Bootstrap("n"), grpc.WithChainUnaryInterceptor(token)) // behind ours
	b, err := integrate.NewBuilder(integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1})
	kit.Must(t, err)
	other, err = grpc.NewClient("xds:///"+target, grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	t.Cleanup(func() { _ = other.Close() })
	for range 5 {
		succeed(t, cc)
	}
	if a, b, c := backends[0].Calls(), backends[1].Calls(), backends[2].Calls(); a != 5 || b != 10 || c != 5 {
		t.Errorf("the backend of UnaryCall got %d RPCs, that of EmptyCall %d, and that of UnaryCall with a header %d; want 5, 10 and 5", a, b, c)
	}
}

// attempts is a server's interceptor that records the attempts of RPCs.
type attempts struct {
	mu       sync.Mutex
	previous [][]string // values of grpc-previous-rpc-attempts
}

func (a *attempts) intercept(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	a.mu.Lock()
	a.previous = append(a.previous, metadata.ValueFromIncomingContext(ctx, "grpc-previous-rpc-attempts"))
	n := len(a.previous)
	a.mu.Unlock()
	_ = grpc.SetTrailer(ctx, metadata.Pairs("attempt", string(rune('0'+n))))
	return handler(ctx, req)
}

// take returns the attempts since its last call.
func (a *attempts) take() [][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	previous := a.previous
	a.previous = nil
	return previous
}

// failingService has one backend that fails RPCs with UNAVAILABLE, and these
// routes.
func failingService(t *testing.T, routes ...*routev3.Route) (*grpc.ClientConn, *attempts) {
	seen := new(attempts)
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{Server: []grpc.ServerOption{grpc.UnaryInterceptor(seen.intercept)}})
	control := xdstest.New(t, xdstest.Options{})
	set(t, control, clusters(backends, nil, routes...))
	cc := dial(t, control.Bootstrap(t.Name()))
	succeed(t, cc)
	backends[0].Fail(codes.Unavailable)
	seen.take()
	return cc, seen
}

// TestRetriesAreSeen: servers can tell retries of ours, as they can gRPC's (A6).
func TestRetriesAreSeen(t *testing.T) {
	for name, route := range map[string]*routev3.Route{
		"by gRPC":        retried(xdstest.Route("", "a"), 2),
		"by interceptor": retried(absent(xdstest.Route("", "a"), "nobody"), 2),
	} {
		t.Run(name, func(t *testing.T) {
			cc, seen := failingService(t, route)
			_, _ = call(t, cc)
			got := seen.take()
			if want := [][]string{nil, {"1"}, {"2"}}; !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("the attempts have grpc-previous-rpc-attempts %q, want %q", got, want)
			}
		})
	}
}

// TestRetriesDoNotMultiply: the number of attempts is the route's, also if the service config has
// the same retries for another route that names the same RPCs (A44).
func TestRetriesDoNotMultiply(t *testing.T) {
	const method = "/grpc.testing.TestService/UnaryCall"
	path := func(m *routev3.RouteMatch) *routev3.Route {
		r := xdstest.Route("", "a")
		r.Match = m
		return r
	}
	regex := path(&routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: ".*"}}})
	foldCase := path(&routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: method}, CaseSensitive: wrapperspb.Bool(false)})
	fraction := xdstest.Route("", "a")
	fraction.Match.RuntimeFraction = fractionOf(50)
	for name, first := range map[string]*routev3.Route{
		"regular expression": regex,
		"letter case":        foldCase,
		"header":             absent(xdstest.Route("", "a"), "nobody"),
		"fraction":           fraction,
		"part of a name":     xdstest.Route("/grpc.", "a"),
	} {
		t.Run(name, func(t *testing.T) {
			cc, seen := failingService(t, retried(first, 2), retried(xdstest.Route("", "a"), 2))
			for range 10 {
				_, _ = call(t, cc)
				if n := len(seen.take()); n != 3 {
					t.Fatalf("the backend got %d attempts, want 3", n)
				}
			}
		})
	}
}

// fractionOf is a condition that so many of 100 RPCs meet.
func fractionOf(percent uint32) *corev3.RuntimeFractionalPercent {
	return &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: percent}}
}

// TestRetriedRPCIsOne: whatever attempts an RPC takes, its options see one RPC: the
// end once, and headers, trailers and peer of the last attempt.
func TestRetriedRPCIsOne(t *testing.T) {
	for name, route := range map[string]*routev3.Route{
		"by gRPC":        retried(xdstest.Route("", "a"), 2),
		"by interceptor": retried(absent(xdstest.Route("", "a"), "nobody"), 2),
	} {
		t.Run(name, func(t *testing.T) {
			cc, seen := failingService(t, route)
			var ends int
			var end error
			var trailer metadata.MD
			var from peer.Peer
			_, err := call(t, cc, grpc.OnFinish(func(err error) { ends++; end = err }), grpc.Trailer(&trailer), grpc.Peer(&from))
			if n := len(seen.take()); n != 3 {
				t.Errorf("%d attempts, want 3", n)
			}
			if ends != 1 || end != err {
				t.Errorf("OnFinish was called %d times, last with %v; want once, with %v", ends, end, err)
			}
			if got := trailer.Get("attempt"); !slices.Equal(got, []string{"3"}) {
				t.Errorf("trailer %q, want that of attempt 3", got)
			}
			if from.Addr == nil {
				t.Error("no peer")
			}
		})
	}
}

// TestAbortedRPCEnds: RPCs that a filter ends before gRPC knows of them tell OnFinish,
// once. A unary RPC cannot end with OK and without a response.
func TestAbortedRPCEnds(t *testing.T) {
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	for _, code := range []codes.Code{codes.OK, codes.Aborted} {
		control := xdstest.New(t, xdstest.Options{})
		set(t, control, clusters(backends, []*hcmv3.HttpFilter{httpFilter(t, "fault", abort(code, 1e6))}, xdstest.Route("", "a")))
		cc := dial(t, control.Bootstrap("n"))
		var ends []codes.Code
		finished := grpc.OnFinish(func(err error) { ends = append(ends, status.Code(err)) })
		want := code
		if code == codes.OK {
			want = codes.Internal
		}
		if _, err := call(t, cc, finished); status.Code(err) != want || !slices.Equal(ends, []codes.Code{want}) {
			t.Errorf("a unary RPC ends with %v, and OnFinish got %v; want %v, once", err, ends, want)
		}
		ends = nil
		_, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(t.Context(), finished)
		if status.Code(err) != code || !slices.Equal(ends, []codes.Code{code}) {
			t.Errorf("a stream ends with %v, and OnFinish got %v; want %v, once", err, ends, code)
		}
	}
}

// TestRefusalsAreFinal: an RPC that is dropped (T-DROP-3) or refused by the circuit
// breaker (A32) fails UNAVAILABLE at once, waits for ready or not, and is not
// retried, neither by gRPC nor by interceptors; nor is one without a route (A28).
func TestRefusalsAreFinal(t *testing.T) {
	bothWays(t, func(t *testing.T, _ bool, open func([]byte) *grpc.ClientConn) {
		backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
		for _, tt := range []struct {
			name     string
			byHeader bool
			change   func(r *xdstest.Resources)
		}{
			{"drop", false, func(r *xdstest.Resources) { testplane.Drop(r.Endpoints[0], "all", 1e6) }},
			{"drop by header", true, func(r *xdstest.Resources) { testplane.Drop(r.Endpoints[0], "all", 1e6) }},
			{"breaker", false, func(r *xdstest.Resources) {
				r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, testplane.MaxRequests(0))}
			}},
			{"breaker by header", true, func(r *xdstest.Resources) {
				r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, testplane.MaxRequests(0))}
			}},
			{"no route", true, func(r *xdstest.Resources) { header(r.Routes[0].VirtualHosts[0].Routes[0], "x", "z") }},
		} {
			route := retrying(xdstest.Route("", target))
			route.GetRoute().RetryPolicy.RetryBackOff.BaseInterval = durationpb.New(time.Hour)
			if tt.byHeader {
				route = header(route, "x", "y")
			}
			control := xdstest.New(t, xdstest.Options{})
			r := service(backends...)
			r.Routes[0] = xdstest.RouteConfig(target, route)
			tt.change(&r)
			set(t, control, r)
			client := testgrpc.NewTestServiceClient(open(control.Bootstrap(t.Name() + tt.name)))
			ctx := minute(t)
			ctx = metadata.AppendToOutgoingContext(ctx, "x", "y")
			for _, wait := range []bool{true, false} {
				if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(wait)); status.Code(err) != codes.Unavailable {
					t.Errorf("%s, wait for ready %v: %v, want UNAVAILABLE", tt.name, wait, err)
				}
			}
		}
		if n := backends[0].Calls(); n != 0 {
			t.Errorf("%d RPCs reached the backend", n)
		}
	})
}

// fetchedToken are credentials that make an RPC for each attempt, with its context.
type fetchedToken struct{ from testgrpc.TestServiceClient }

func (c fetchedToken) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	_, err := c.from.EmptyCall(ctx, &testgrpc.Empty{})
	return map[string]string{"token": "x"}, err
}

func (fetchedToken) RequireTransportSecurity() bool { return false }

// TestPreviousAttemptsHeader: grpc-previous-rpc-attempts is a header of the attempts at a retried
// RPC, beside the headers of its credentials, and not of the RPCs that the credentials make (A6).
func TestPreviousAttemptsHeader(t *testing.T) {
	var mu sync.Mutex
	seen := map[string][]string{}
	server := grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		previous := strings.Join(metadata.ValueFromIncomingContext(ctx, "grpc-previous-rpc-attempts"), ",")
		seen[info.FullMethod] = append(seen[info.FullMethod], strings.Join(metadata.ValueFromIncomingContext(ctx, "token"), ",")+previous)
		return h(ctx, req)
	})
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{Server: []grpc.ServerOption{server}})
	tokens, err := grpc.NewClient(backends[1].Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	t.Cleanup(func() { _ = tokens.Close() })
	control := xdstest.New(t, xdstest.Options{})
	set(t, control, clusters(backends[:1], nil, retried(absent(xdstest.Route("", "a"), "nobody"), 2)))
	backends[0].Fail(codes.Unavailable)
	creds := fetchedToken{testgrpc.NewTestServiceClient(tokens)}
	for name, run := range map[string]func() error{
		"of the channel": func() error {
			_, err := call(t, dial(t, control.Bootstrap("n"), grpc.WithPerRPCCredentials(creds)), grpc.WaitForReady(true))
			return err
		},
		"of the RPC": func() error {
			_, err := call(t, dial(t, control.Bootstrap("n")), grpc.WaitForReady(true), grpc.PerRPCCredentials(creds))
			return err
		},
	} {
		clear(seen)
		if err := run(); status.Code(err) != codes.Unavailable {
			t.Errorf("credentials %s: %v, want UNAVAILABLE", name, err)
		}
		want := map[string][]string{testgrpc.TestService_UnaryCall_FullMethodName: {"x", "x1", "x2"}, testgrpc.TestService_EmptyCall_FullMethodName: {"", "", ""}}
		if !reflect.DeepEqual(seen, want) {
			t.Errorf("credentials %s: tokens and previous attempts are %v, want %v", name, seen, want)
		}
	}
}
