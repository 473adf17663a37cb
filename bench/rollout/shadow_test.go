// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/shadow"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// shadowed returns a channel of stock's, and its shadow.
func shadowed(t testing.TB, name string, cfg integrate.Config) (*grpc.ClientConn, *shadow.Shadow) {
	t.Helper()
	cfg.Linger = -1
	s, err := shadow.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return closing(t)(grpc.NewClient("xds:///"+name, append(s.DialOptions(), plaintext)...)), s
}

// ready waits until the shadow compares RPCs.
func ready(t testing.TB, cc *grpc.ClientConn, s *shadow.Shadow) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); s.Report().Calls == 0; {
		_ = call(t, cc, grpc.WaitForReady(true))
		if time.Now().After(deadline) {
			t.Fatal("the shadow compares nothing")
		}
	}
}

// aspect returns a part of random routes and RPCs.
func aspect(r *rand.Rand, kind string, n int) string { return fmt.Sprintf("%s%d", kind, r.IntN(n)) }

// randomRoutes are routes to some of the clusters, of all kinds.
func randomRoutes(r *rand.Rand, clusters []string) []*routev3.Route {
	var routes []*routev3.Route
	for range 30 {
		var route *routev3.Route
		if r.IntN(3) == 0 {
			route = xdstest.WeightedRoute("", xdstest.Weighted{Cluster: clusters[0], Weight: 1 + r.Uint32N(9)}, xdstest.Weighted{Cluster: clusters[1+r.IntN(len(clusters)-1)], Weight: 1 + r.Uint32N(9)})
		} else {
			route = xdstest.Route("", clusters[r.IntN(len(clusters))])
		}
		path := "/" + aspect(r, "s", 6) + "/"
		switch r.IntN(5) {
		case 0:
			route.Match.PathSpecifier = &routev3.RouteMatch_Path{Path: path + aspect(r, "m", 4)}
		case 1:
			route.Match.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: path + "m[01]"}}
		default:
			route.Match.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: path}
		}
		if r.IntN(2) == 0 {
			route.Match.Headers = []*routev3.HeaderMatcher{{Name: aspect(r, "h", 3), InvertMatch: r.IntN(4) == 0, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
				StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: aspect(r, "v", 2)}},
			}}}
		}
		if r.IntN(6) == 0 {
			route.Match.RuntimeFraction = &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: r.Uint32N(101)}}
		}
		routes = append(routes, route)
	}
	return routes
}

// TestShadowAgrees: over random routes of all kinds, stock and xdslb differ in none of
// 10,000 RPCs.
func TestShadowAgrees(t *testing.T) {
	rpcs, worlds := 10_000, 5
	if testing.Short() {
		rpcs = 2_000
	}
	for seed := range worlds {
		clusters := []string{}
		name, _ := service(t, 1, func(r *xdstest.Resources) {
			name, one := r.Listeners[0].Name, r.Endpoints[0]
			r.Clusters, r.Endpoints = nil, nil
			for i := range 6 {
				cluster := fmt.Sprintf("%s.%d", name, i)
				clusters = append(clusters, cluster)
				r.Clusters = append(r.Clusters, xdstest.Cluster(cluster, cluster))
				r.Endpoints = append(r.Endpoints, &endpointv3.ClusterLoadAssignment{ClusterName: cluster, Endpoints: one.Endpoints})
			}
			random := rand.New(rand.NewPCG(uint64(seed), 0))
			r.Routes = []*routev3.RouteConfiguration{xdstest.RouteConfig(name, append(randomRoutes(random, clusters), xdstest.Route("/grpc.testing", clusters[0]))...)}
		})
		cc, s := shadowed(t, name, integrate.Config{})
		ready(t, cc, s)
		before := s.Report().Calls
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(seed), uint64(g+1)))
				for range rpcs / worlds / 8 {
					ctx := metadata.AppendToOutgoingContext(context.Background(), aspect(r, "h", 3), aspect(r, "v", 3))
					_ = cc.Invoke(ctx, "/"+aspect(r, "s", 7)+"/"+aspect(r, "m", 5), &testgrpc.Empty{}, &testgrpc.Empty{}) // the backend implements none of the methods
				}
			})
		}
		wg.Wait()
		got := s.Report()
		if len(got.Differences) != 0 || got.Pending != 0 {
			t.Errorf("seed %d: %+v", seed, got)
		}
		if n := got.Calls - before; n != uint64(rpcs/worlds/8*8) {
			t.Errorf("seed %d: %d RPCs compared, want %d", seed, n, rpcs/worlds/8*8)
		}
	}
}

// TestShadowFinds checks that a shadow whose control plane has different resources detects each
// kind of difference, and logs it once with xdslb's result.
func TestShadowFinds(t *testing.T) {
	for kind, tt := range map[shadow.Kind]struct {
		stock, ours func(r *xdstest.Resources)
		text        string
	}{
		shadow.Cluster: {nil, func(r *xdstest.Resources) {
			r.Routes[0].VirtualHosts[0].Routes[0] = xdstest.Route("", "another")
			r.Clusters = append(r.Clusters, xdstest.Cluster("another", r.Listeners[0].Name))
		}, "another"},
		shadow.NoRoute: {nil, func(r *xdstest.Resources) {
			r.Routes[0].VirtualHosts[0].Routes[0].Match.PathSpecifier = &routev3.RouteMatch_Path{Path: "/nowhere"}
		}, "/nowhere"},
		shadow.Route: {func(r *xdstest.Resources) {
			r.Routes[0].VirtualHosts[0].Routes[0].Match.PathSpecifier = &routev3.RouteMatch_Path{Path: "/nowhere"}
		}, nil, "no route"},
		shadow.Unserved: {nil, func(r *xdstest.Resources) {
			r.Routes[0].VirtualHosts[0].Domains = []string{"elsewhere"}
		}, "cannot be served"},
		shadow.Shares: {weighted(1, 1), weighted(1, 2), "of 4096 RPCs"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			name, backends := service(t, 1, tt.stock)
			other := xdstest.New(t, xdstest.Options{})
			r := xdstest.Service(name, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
			if tt.ours != nil {
				tt.ours(&r)
			}
			if err := other.Set(r); err != nil {
				t.Fatal(err)
			}
			cc, s := shadowed(t, name, integrate.Config{Bootstrap: other.Bootstrap("n")})
			ready(t, cc, s)
			if kind == shadow.Shares {
				for range 4096 {
					_ = call(t, cc)
				}
			}
			lines.WantOne(t, "once for each kind", "kind="+string(kind), name, tt.text)
			if got := s.Report().Differences; len(got) != 1 || got[kind] == 0 {
				t.Errorf("found %v, want %s", got, kind)
			}
		})
	}
}

// TestShadowReportsWeights checks that a Shadow reports and logs a cluster whose endpoints have
// different weights, with the shares that stock gives them and those that xdslb would, unless
// xdslb would ignore the weights.
func TestShadowReportsWeights(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		name, backends := service(t, 2, func(r *xdstest.Resources) {
			r.Endpoints[0].Endpoints[0].LbEndpoints[0].LoadBalancingWeight = wrapperspb.UInt32(1)
			r.Endpoints[0].Endpoints[0].LbEndpoints[1].LoadBalancingWeight = wrapperspb.UInt32(3)
		})
		cc, s := shadowed(t, name, integrate.Config{IgnoreEndpointWeights: ignore})
		ready(t, cc, s)
		report := s.Report()
		_ = cc.Close()
		if ignore {
			if len(report.Weights) > 0 || len(report.Differences) > 0 || len(lines.With("different weights", name)) > 0 {
				t.Errorf("with IgnoreEndpointWeights: %+v", report)
			}
			continue
		}
		lines.WantOne(t, "WARN", "different weights", name)
		if report.Differences[shadow.Weights] != 1 || len(report.Weights) != 1 {
			t.Fatalf("%+v, want one cluster", report)
		}
		w := report.Weights[0]
		if w.Cluster != name || w.Moved != .25 || len(w.Endpoints) != 2 {
			t.Fatalf("%+v, want a quarter of the RPCs moved", w)
		}
		for _, e := range w.Endpoints {
			if want := float64(e.Weight) / 4; e.Stock != .5 || e.Xdslb != want {
				t.Errorf("%+v, want shares of 0.5 and %v", e, want)
			}
		}
		if i := slices.IndexFunc(backends, func(b *xdstest.Backend) bool { return b.Addr().String() == w.Endpoints[0].Addr }); i < 0 {
			t.Errorf("%+v is no backend", w.Endpoints[0])
		}
	}
}

// weighted splits RPCs between two clusters.
func weighted(a, b uint32) func(r *xdstest.Resources) {
	return func(r *xdstest.Resources) {
		name := r.Listeners[0].Name
		r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(name+".a", name), xdstest.Cluster(name+".b", name)}
		r.Routes[0].VirtualHosts[0].Routes[0] = xdstest.WeightedRoute("", xdstest.Weighted{Cluster: name + ".a", Weight: a}, xdstest.Weighted{Cluster: name + ".b", Weight: b})
	}
}

// TestShadowOfTwo: a Shadow is for one channel.
func TestShadowOfTwo(t *testing.T) {
	name, _ := service(t, 1, nil)
	cc, s := shadowed(t, name, integrate.Config{})
	ready(t, cc, s)
	second := closing(t)(grpc.NewClient("xds:///"+name, append(s.DialOptions(), plaintext)...))
	if err := call(t, second); err == nil {
		t.Error("a second channel has the Shadow")
	}
	_ = cc.Close()
	third, _ := shadowed(t, name, integrate.Config{})
	if err := call(t, third); err != nil {
		t.Error(err)
	}
}
