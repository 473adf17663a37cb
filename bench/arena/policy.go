// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	clientwrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer/leastrequest"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/picker"
)

// An Impl is the implementation of a channel.
type Impl string

// The implementations.
const (
	Anchor Impl = "anchor" // a gRPC channel with a policy of this package, without xDS
	Ours   Impl = "ours"
	Stock  Impl = "stock" // google.golang.org/grpc/xds
)

// A Policy is a row: an implementation and its configuration.
type Policy struct {
	Impl Impl
	Name string

	// Cluster is the configuration by the control plane for Ours and Stock; empty means
	// ROUND_ROBIN.
	Cluster []testplane.ClusterOption
	// ServiceConfig is the configuration of channels without xDS: a policy by its name in
	// gRPC's registry, ours or another. Endpoints have their nominal speed as weight.
	ServiceConfig string
	// Config is for channels of Ours.
	Config integrate.Config
	// DialOptions are for all channels of clients.
	DialOptions []grpc.DialOption

	// Route, if not nil, configures the route, for example retries.
	Route func(*routev3.RouteAction)

	Weights     bool // EDS weights are the nominal speeds
	Reports     bool // servers report their load at the end of RPCs (A51)
	HidesErrors bool // reports do not contain errors
	Hashed      bool // each RPC has its own hash, in a header
	// Server, if not nil, is for policies with a server side. It returns options of the gRPC
	// server, and services to register. Messages of methods other than the arena's count as
	// extra.
	Server func(s *Server) (opts []grpc.ServerOption, register func(grpc.ServiceRegistrar))

	// Only, if not nil, names the fleets in which the policy runs; nil means all.
	Only []string
	// Kernel, if not nil, is the same policy without channels, which runs in the fleets of the
	// calibration.
	Kernel NewKernel
}

// String returns the name of the row.
func (p *Policy) String() string { return string(p.Impl) + " " + p.Name }

// Names of the two policies with which all others are compared.
const (
	RandomName = "random"
	OracleName = "oracle"
)

const hashHeader = "session"

// Policies returns the rows of each fleet. Random and oracle are the first.
func Policies() []Policy {
	list := []Policy{
		{Impl: Anchor, Name: RandomName, Kernel: randomKernel, ServiceConfig: `{"loadBalancingConfig":[{"` + randomPolicy + `":{}}]}`},
		{Impl: Anchor, Name: OracleName, Kernel: oracleKernel, ServiceConfig: `{"loadBalancingConfig":[{"` + oraclePolicy + `":{}}]}`},
	}
	edf, least := picker.Policy{Kind: picker.PolicyEDF}, picker.Policy{Kind: picker.PolicyLeastRequest, Least: &picker.LeastRequest{Choices: 2}}
	for _, p := range []struct {
		Policy
		stock NewKernel
	}{
		{Policy{Name: "round_robin", Kernel: snapshots(edf, false)},
			newBalancerKernel(roundrobin.Name, `{}`)},
		{Policy{Name: "least_request", Cluster: []testplane.ClusterOption{testplane.LeastRequest(2)},
			Kernel: snapshots(least, false)},
			newBalancerKernel(leastrequest.Name, `{"choiceCount":2}`)},
		{Policy{Name: "client_wrr", Cluster: []testplane.ClusterOption{clientWRR}, Reports: true}, nil},
		{Policy{Name: "ring_hash", Cluster: []testplane.ClusterOption{testplane.RingHash(4096, 4096)}, Hashed: true, Only: []string{homogeneous, cacheGrows}}, nil},
	} {
		ours, stock := p.Policy, p.Policy
		ours.Impl, stock.Impl, stock.Kernel = Ours, Stock, p.stock
		list = append(list, stock, ours)
	}
	latency := picker.Policy{Kind: picker.PolicyLeastLatency, Latency: &picker.LeastLatency{Decay: 10 * time.Second}}
	for _, impl := range []Impl{Stock, Ours} {
		list = append(list, Policy{Impl: impl, Name: "client_wrr, errors not reported", Cluster: []testplane.ClusterOption{clientWRR}, Reports: true, HidesErrors: true, Only: []string{oneFailsFast}})
	}
	return append(slices.Concat(list, zoneAware(), slowStarts(), retryRows(), cacheRows(), ejecting()),
		Policy{Impl: Anchor, Name: "peak_ewma", Kernel: peakEWMAKernel, ServiceConfig: `{"loadBalancingConfig":[{"` + peakEWMAPolicy + `":{}}]}`},
		Policy{Impl: Ours, Name: "least_latency", Kernel: snapshots(latency, false), Cluster: leastLatency("10s")},
		Policy{Impl: Ours, Name: "least_latency of 3 s", Cluster: leastLatency("3s"), Only: []string{threeSlow, "antagonists", "cold caches", rollingRestart}},
		Policy{Impl: Ours, Name: "prequal", Cluster: []testplane.ClusterOption{prequal(0, 3, 1)}, Server: answersProbes},
		Policy{Impl: Ours, Name: "prequal, 1 probe", Cluster: []testplane.ClusterOption{prequal(0, 1, .25)}, Server: answersProbes, Only: []string{homogeneous, threeSlow}},
		Policy{Impl: Ours, Name: "prequal, synchronous", Cluster: []testplane.ClusterOption{prequal(3, 3, 1)}, Server: answersProbes},
		Policy{Impl: Ours, Name: "edf", Weights: true, Kernel: snapshots(edf, true), Only: []string{generations}},
		Policy{Impl: Ours, Name: "least_request by weight", Weights: true, Kernel: snapshots(least, true), Only: []string{generations}, Cluster: []testplane.ClusterOption{testplane.LeastRequest(2)}},
	)
}

// leastLatency returns least latency with a time constant of the decay.
func leastLatency(decay string) []testplane.ClusterOption {
	return typedStruct(integrate.LeastLatency, map[string]any{"decayTime": decay})
}

// typedStruct returns a policy by name.
func typedStruct(name string, config map[string]any) []testplane.ClusterOption {
	return []testplane.ClusterOption{testplane.Policies(testplane.TypedStruct(name, config))}
}

// clientWRR weighs endpoints by their load reports (A58), with A58's defaults except for the
// blackout period, which would exceed the warm-up.
func clientWRR(c *clusterv3.Cluster) {
	testplane.Policies(testplane.WrrLocality(&clientwrrv3.ClientSideWeightedRoundRobin{
		BlackoutPeriod:     durationpb.New(2 * time.Second),
		WeightUpdatePeriod: durationpb.New(time.Second),
	}))(c)
}

// slowStarts returns the rows in which the share of new endpoints grows gradually, within the time that a cold
// server needs to fill its cache at that rate: with half of it the server is overloaded by then.
func slowStarts() []Policy {
	start := &commonv3.SlowStartConfig{SlowStartWindow: durationpb.New(10 * time.Second)}
	return []Policy{
		{Impl: Ours, Name: "round_robin, slow start", Only: []string{rollingRestart},
			Cluster: []testplane.ClusterOption{testplane.Policies(&roundrobinv3.RoundRobin{SlowStartConfig: start})}},
		{Impl: Ours, Name: "least_request, slow start", Only: []string{rollingRestart},
			Cluster: []testplane.ClusterOption{testplane.Policies(&leastrequestv3.LeastRequest{SlowStartConfig: start})}},
		{Impl: Ours, Name: "least_latency, slow start", Only: []string{rollingRestart},
			Cluster: typedStruct(integrate.LeastLatency, map[string]any{"slow_start_config": map[string]any{"slow_start_window": "10s"}})},
	}
}
