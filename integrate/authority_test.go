// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer/randomsubsetting"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// tellAuthority has a backend send the authority of each RPC back.
func tellAuthority(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if err := grpc.SetHeader(ctx, metadata.Pairs("authority", md.Get(":authority")[0])); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// TestAuthorityRewriting: an RPC gets the hostname of its endpoint, or the name
// of its LOGICAL_DNS cluster, as its authority if its route asks for that and the
// control plane is trusted; an endpoint without hostname leaves the authority
// alone, and the one that the caller chose for an RPC takes precedence (A81). The same rules apply to
// the authority of a route (A111).
func TestAuthorityRewriting(t *testing.T) {
	backend := xdstest.NewBackends(t, 1, xdstest.BackendOptions{Server: []grpc.ServerOption{grpc.UnaryInterceptor(tellAuthority)}})[0]
	control := xdstest.New(t, xdstest.Options{})
	rewriting := func(path, cluster string) *routev3.Route {
		r := xdstest.Route(path, cluster)
		r.GetRoute().HostRewriteSpecifier = &routev3.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)}
		return r
	}
	literal := func(path, cluster string) *routev3.Route {
		r := xdstest.Route(path, cluster)
		r.GetRoute().HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: "literal.test:80"}
		return r
	}
	const methods = "/grpc.testing.TestService/"
	resources := func(hostname string, routes ...*routev3.Route) xdstest.Resources {
		at := xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backend)}
		r := xdstest.Service(target, at)
		r.Add(xdstest.Resources{
			Clusters: []*clusterv3.Cluster{
				xdstest.Cluster("nameless", target+"2"),
				dnsCluster("dns", backend.Addr().Port()),
				xdstest.Cluster("custom", target, testplane.Policies(testplane.TypedStruct(randomsubsetting.Name, map[string]any{
					"subsetSize": 2., "childPolicy": []any{map[string]any{"round_robin": map[string]any{}}},
				}))),
				xdstest.Cluster("first", target, testplane.Policies(&pickfirstv3.PickFirst{})),
			},
		}, xdstest.Resources{Endpoints: xdstest.Service(target+"2", at).Endpoints})
		r.Endpoints[0].Endpoints[0].LbEndpoints[0].GetEndpoint().Hostname = hostname
		r.Routes[0] = xdstest.RouteConfig(target, routes...)
		return r
	}
	authority := func(cc *grpc.ClientConn, opts ...grpc.CallOption) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var header metadata.MD
		if _, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}, append(opts, grpc.Header(&header))...); err != nil {
			t.Fatal(err)
		}
		return header.Get("authority")[0]
	}
	bootstrap := control.Bootstrap("n")
	trusting := bytes.Replace(bootstrap, []byte(`"xds_v3"`), []byte(`"xds_v3", "trusted_xds_server"`), 1)
	if bytes.Equal(bootstrap, trusting) {
		t.Fatalf("bootstrap %s has no server_features", bootstrap)
	}
	for _, tt := range []struct {
		name      string
		bootstrap []byte
		resources xdstest.Resources
		opts      []grpc.CallOption
		want      string
	}{
		{"rewritten", trusting, resources("a.test", rewriting("", target)), nil, "a.test"},
		{"another name", trusting, resources("b.test", rewriting("", target)), nil, "b.test"},
		{"the caller's", trusting, resources("b.test", rewriting("", target)), []grpc.CallOption{grpc.CallAuthority("c.test")}, "c.test"},
		{"another route", trusting, resources("b.test", rewriting("/other/", target), xdstest.Route(methods, target)), nil, target},
		{"no hostname", trusting, resources("b.test", rewriting("", "nameless")), nil, target},
		{"LOGICAL_DNS", trusting, resources("b.test", rewriting("", "dns")), nil, "localhost"},
		{"a custom policy", trusting, resources("b.test", rewriting("", "custom")), nil, "b.test"},
		{"pick_first", trusting, resources("b.test", rewriting("", "first")), nil, "b.test"},
		{"not trusted", bootstrap, resources("b.test", rewriting("", target)), nil, target},
		{"literal", trusting, resources("b.test", literal("", target)), nil, "literal.test:80"},
		{"literal, retried", trusting, resources("b.test", retried(absent(literal("", target), "nobody"), 1)), nil, "literal.test:80"},
		{"literal, the caller's", trusting, resources("b.test", literal("", target)), []grpc.CallOption{grpc.CallAuthority("c.test")}, "c.test"},
		{"literal, another route", trusting, resources("b.test", literal("/other/", target), xdstest.Route(methods, target)), nil, target},
		{"literal beside hostnames", trusting, resources("b.test", rewriting("/other/", target), literal(methods, "nameless")), nil, "literal.test:80"},
		{"literal, LOGICAL_DNS", trusting, resources("b.test", literal("", "dns")), nil, "literal.test:80"},
		{"literal, a custom policy", trusting, resources("b.test", literal("", "custom")), nil, "literal.test:80"},
		{"literal, pick_first", trusting, resources("b.test", literal("", "first")), nil, "literal.test:80"},
		{"literal, not trusted", bootstrap, resources("b.test", literal("", target)), nil, target},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set(t, control, tt.resources)
			if got := authority(dial(t, tt.bootstrap), tt.opts...); got != tt.want {
				t.Errorf("authority %q, want %q", got, tt.want)
			}
		})
	}
	// An existing channel follows changes, even if only the name changes.
	cc := dial(t, trusting)
	for _, step := range []struct {
		hostname string
		rewrite  bool
	}{{"a.test", false}, {"a.test", true}, {"b.test", true}, {"b.test", false}, {"b.test", true}} {
		route, want := xdstest.Route("", target), target
		if step.rewrite {
			route, want = rewriting("", target), step.hostname
		}
		set(t, control, resources(step.hostname, route))
		for deadline := time.Now().Add(time.Minute); authority(cc) != want; {
			if time.Now().After(deadline) {
				t.Fatalf("authority %q, want %q", authority(cc), want)
			}
		}
	}
}

// dnsCluster is a LOGICAL_DNS cluster for localhost.
func dnsCluster(name string, port uint16) *clusterv3.Cluster {
	c := xdstest.Cluster(name, "")
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_LOGICAL_DNS}
	c.EdsClusterConfig = nil
	c.LoadAssignment = xdstest.Endpoints(name, xdstest.Locality{Endpoints: make([]xdstest.Endpoint, 1)})
	addr := c.LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().GetAddress().GetSocketAddress()
	addr.Address = "localhost"
	addr.PortSpecifier = &corev3.SocketAddress_PortValue{PortValue: uint32(port)}
	return c
}
