// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
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
	other = dialBare(t, control.Bootstrap("n"), target)
	for range 5 {
		succeed(t, cc)
	}
	if a, b, c := backends[0].Calls(), backends[1].Calls(), backends[2].Calls(); a != 5 || b != 10 || c != 5 {
		t.Errorf("the backend of UnaryCall got %d RPCs, that of EmptyCall %d, and that of UnaryCall with a header %d; want 5, 10 and 5", a, b, c)
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
			backends, control := start(t, 1)
			set(t, control, clusters(backends, nil, retried(first, 2), retried(xdstest.Route("", "a"), 2)))
			cc := dial(t, control.Bootstrap(t.Name()))
			succeed(t, cc)
			backends[0].Fail(codes.Unavailable)
			for range 10 {
				before := backends[0].Calls()
				_, _ = call(t, cc)
				if n := backends[0].Calls() - before; n != 3 {
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
