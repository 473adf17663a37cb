// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"fmt"
	"net"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	localityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

const (
	service    = "latency.xdslb.test"
	hashHeader = "session"
)

// An Impl names what is compared.
type Impl string

// The implementations.
const (
	Ours  Impl = "ours"
	Stock Impl = "stock"       // google.golang.org/grpc/xds
	Plain Impl = "round_robin" // grpc-go's, without xDS
)

// listen is how servers listen; nil is on TCP.
func (s Study) listen() func(addr string) (net.Listener, error) {
	if s.net == nil {
		return nil
	}
	return s.net.Listen
}

// dial returns a channel to the service.
func (s Study) dial(impl Impl, control *xdstest.Server, fleet []*node) (*grpc.ClientConn, error) {
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	var dialer []grpc.DialOption // stock's connections to the control plane are loopback's
	if s.net != nil {
		dialer = append(dialer, grpc.WithContextDialer(s.net.Dial))
		opts = append(opts, dialer...)
	}
	bootstrap := control.Bootstrap("latency")
	switch impl {
	case Ours:
		ours, err := integrate.DialOptions(integrate.Config{Bootstrap: bootstrap, Linger: -1, ControlPlaneDialOptions: dialer})
		if err != nil {
			return nil, err
		}
		return grpc.NewClient("xds:///"+service, append(opts, ours...)...)
	case Stock:
		b, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
		if err != nil {
			return nil, err
		}
		return grpc.NewClient("xds:///"+service, append(opts, grpc.WithResolvers(b))...)
	case Plain:
		m := manual.NewBuilderWithScheme("static")
		var state resolver.State
		for _, n := range fleet {
			state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: n.Addr().String()}}})
		}
		m.InitialState(state)
		return grpc.NewClient("static:///"+service, append(opts, grpc.WithResolvers(m), grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))...)
	}
	return nil, fmt.Errorf("latency: there is no implementation %q", impl)
}

// A policy is what the control plane asks for.
type policy struct {
	name     string
	option   xdstest.ClusterOption // nil is ROUND_ROBIN
	weighted bool                  // endpoints by their capacity
	hashed   bool
}

var policies = []policy{
	{name: "round_robin"},
	{name: "edf", weighted: true},
	{name: "least_request", option: xdstest.LeastRequest(2)},
	{name: "ring_hash", option: xdstest.RingHash(4096, 4096), hashed: true},
	{name: "client_wrr", option: clientWRR},
}

// clientWRR has clients weigh endpoints by the load that they report (A58).
func clientWRR(c *clusterv3.Cluster) {
	inner := choose("client_side_weighted_round_robin", &wrrv3.ClientSideWeightedRoundRobin{
		BlackoutPeriod:     durationpb.New(time.Millisecond), // grpc-go takes 0 for its default of 10 s
		WeightUpdatePeriod: durationpb.New(slot),
	})
	c.LoadBalancingPolicy = choose("wrr_locality", &localityv3.WrrLocality{EndpointPickingPolicy: inner})
}

func choose(name string, config proto.Message) *clusterv3.LoadBalancingPolicy {
	a, err := anypb.New(config)
	if err != nil {
		panic(err) // a message that was made above can be encoded
	}
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "envoy.load_balancing_policies." + name, TypedConfig: a},
	}}}
}

// resources has the fleet in halves, each a locality.
func (p policy) resources(fleet []*node, weights, priorities [2]uint32) xdstest.Resources {
	var ls []xdstest.Locality
	for h := range 2 {
		l := xdstest.Locality{Place: xdstest.Place{Zone: string(rune('a' + h))}, Weight: weights[h], Priority: priorities[h]}
		for _, n := range fleet[h*len(fleet)/2 : (h+1)*len(fleet)/2] {
			e := xdstest.Endpoint{Addr: n.Addr()}
			if p.weighted {
				e.Weight = uint32(n.capacity())
			}
			l.Endpoints = append(l.Endpoints, e)
		}
		ls = append(ls, l)
	}
	return p.service(ls...)
}

// flat has the fleet in one locality.
func (p policy) flat(fleet []*node) xdstest.Resources {
	r := p.resources(fleet, [2]uint32{1, 1}, [2]uint32{})
	all := r.Endpoints[0].Endpoints
	all[0].LbEndpoints = append(all[0].LbEndpoints, all[1].LbEndpoints...)
	r.Endpoints[0].Endpoints = all[:1]
	return r
}

func (p policy) service(ls ...xdstest.Locality) xdstest.Resources {
	r := xdstest.Service(service, ls...)
	opts := []xdstest.ClusterOption{xdstest.LoadReports(), xdstest.MaxRequests(1_000_000)}
	if p.option != nil {
		opts = append(opts, p.option)
	}
	r.Clusters[0] = xdstest.Cluster(service, service, opts...)
	if p.hashed {
		xdstest.HashHeader(r.Routes[0].VirtualHosts[0].Routes[0], hashHeader)
	}
	return r
}
