// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestBuilders checks that grpc-go's client accepts the result of every builder, and that
// OnRequest sees its requests.
func TestBuilders(t *testing.T) {
	leak.Check(t)
	ctx := testContext(t)
	b := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	var mu sync.Mutex
	seen := make(map[string]string) // node id by type
	s := xdstest.New(t, xdstest.Options{OnRequest: func(stream int64, req *discoveryv3.DiscoveryRequest) {
		mu.Lock()
		defer mu.Unlock()
		if stream == 1 {
			seen[req.GetTypeUrl()] = req.GetNode().GetId()
		}
	}})
	clusters := []*clusterv3.Cluster{
		xdstest.Cluster("plain", "service", testplane.LoadReports(), testplane.MaxRequests(5)),
		xdstest.Cluster("ring", "service", testplane.RingHash(16, 32)),
		xdstest.Cluster("least", "", testplane.LeastRequest(3)),
	}
	locality := xdstest.Locality{
		Place:     xdstest.Place{Region: "r", Zone: "z", SubZone: "s"},
		Weight:    7,
		Endpoints: []xdstest.Endpoint{{Addr: b[0].Addr(), Weight: 3}},
	}
	dead := xdstest.Locality{Priority: 1, Endpoints: []xdstest.Endpoint{{Addr: netip.MustParseAddrPort("[::1]:1")}}}
	set(t, s, xdstest.Resources{
		Listeners: []*listenerv3.Listener{testplane.InlineListener("svc", xdstest.RouteConfig("svc",
			xdstest.Route("/no.such.Service/", "plain"),
			testplane.HashHeader(testplane.WeightedRoute("",
				testplane.Weighted{Cluster: "plain", Weight: 1},
				testplane.Weighted{Cluster: "ring", Weight: 1},
				testplane.Weighted{Cluster: "least", Weight: 1},
			), "user"),
		))},
		Clusters: clusters,
		Endpoints: []*endpointv3.ClusterLoadAssignment{
			testplane.Drop(testplane.Drop(xdstest.Endpoints("service", locality, dead), "a", 0), "b", 0),
			xdstest.Endpoints("least", locality),
		},
	})
	c := dialStock(t, s, "svc")
	for range 30 {
		hostname(t, ctx, c)
	}
	for typeURL, want := range map[string]int{xdstest.LDS: 1, xdstest.CDS: 3, xdstest.EDS: 2} {
		if err := s.WaitACK(ctx, typeURL); err != nil {
			t.Error(err)
		}
		if got := s.Stats(typeURL); len(got.Names) != want || got.NACKs != 0 {
			t.Errorf("Stats(%s) = %+v, want %d names and no NACK", typeURL, got, want)
		}
		mu.Lock()
		if seen[typeURL] != "stock" {
			t.Errorf("OnRequest saw node %q for %s, want stock", seen[typeURL], typeURL)
		}
		mu.Unlock()
	}
}

// TestRemove checks that WaitACK waits for removals, and that a client is not expected to
// answer removals before its subscription.
func TestRemove(t *testing.T) {
	leak.Check(t)
	ctx := testContext(t)
	b := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	s := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service("svc", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(b...)})
	set(t, s, r)
	hostname(t, ctx, dialStock(t, s, "svc"))
	kit.Must(t, s.WaitACK(ctx, xdstest.CDS))
	before := s.Stats(xdstest.CDS).ACKs
	r.Clusters, r.Endpoints = nil, nil
	set(t, s, r)
	kit.Must(t, s.WaitACK(ctx, xdstest.CDS))
	if got := s.Stats(xdstest.CDS).ACKs; got != before+1 {
		t.Errorf("%d ACKs after the removal, want %d", got, before+1)
	}

	set(t, s, xdstest.Resources{})
	late := xdstest.New(t, xdstest.Options{})
	set(t, late, r)
	set(t, late, xdstest.Resources{})
	c := dialStock(t, late, "svc")
	go func() { _, _ = c.EmptyCall(ctx, nil) }() // has the channel connect
	if err := late.WaitACK(ctx, xdstest.LDS); err != nil {
		t.Error(err)
	}
}

func BenchmarkSet(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			s := xdstest.New(b, xdstest.Options{})
			var l xdstest.Locality
			for i := range n {
				l.Endpoints = append(l.Endpoints, xdstest.Endpoint{
					Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80), Weight: 1,
				})
			}
			resources := [2]xdstest.Resources{xdstest.Service("svc", l), xdstest.Service("svc", l)}
			resources[1].Endpoints[0].Endpoints[0].LbEndpoints[0].LoadBalancingWeight.Value = 2
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := s.Set(resources[i&1]); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
