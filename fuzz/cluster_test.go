// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"math"
	"net"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	typedv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	leastv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglevv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	subsetv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	ringv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	localityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/lbpolicy"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// clusterSeeds are clusters, and why each is of interest.
func clusterSeeds() []*clusterv3.Cluster {
	policies := func(list *clusterv3.LoadBalancingPolicy) *clusterv3.Cluster {
		c := xdstest.Cluster("c", "s")
		c.LoadBalancingPolicy = list
		return c
	}
	of := func(text string) *clusterv3.Cluster { return ofJSON(new(clusterv3.Cluster), text) }
	const host = `"loadAssignment": {"endpoints": [{"lbEndpoints": [{"endpoint": {"address": {"socketAddress": {"address": "h.example", "portValue": 80}}}}]}]}`
	const eds = `"type": "EDS", "edsClusterConfig": {"serviceName": "s", "edsConfig": {"self": {}}}`
	deep := oneOf(new(roundv3.RoundRobin))
	for range 20 { // more than A52 allows
		deep = oneOf(&localityv3.WrrLocality{EndpointPickingPolicy: deep})
	}
	return []*clusterv3.Cluster{
		{}, of(`{"name": "dns", "type": "LOGICAL_DNS", ` + host + `}`),
		of(`{"name": "agg", "clusterType": {"name": "envoy.clusters.aggregate", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters": ["a", "b"]}}}`),
		of(`{"name": "strict", "type": "STRICT_DNS", ` + host + `}`), of(`{"name": "static", "type": "STATIC"}`),
		of(`{"name": "limits", ` + eds + `, "lrsServer": {"self": {}}, "lrsReportEndpointMetrics": ["cpu_utilization", "named_metrics.x", "named_metrics.x", "named_metrics."],
			"circuitBreakers": {"thresholds": [{"maxRequests": 7}]}, "outlierDetection": {"enforcingSuccessRate": 101}}`),
		of(`{"name": "retries", ` + eds + `, "healthChecks": [{}], "circuitBreakers": {"thresholds": [{"priority": "HIGH", "maxRetries": 1}, {"retryBudget": {"budgetPercent": {"value": 29.25}}}]}}`),
		of(`{"name": "sessions", ` + eds + `, "commonLbConfig": {"overrideHostStatus": {"statuses": ["DRAINING"]}}, "circuitBreakers": {"thresholds": [{"maxRetries": 5}]}}`),
		xdstest.Cluster("c", ""),
		xdstest.Cluster("xdstp://a/envoy.config.cluster.v3.Cluster/c", ""), // must name its service (A47)
		xdstest.Cluster("c", "s", testplane.RingHash(1024, 4096)),
		xdstest.Cluster("c", "s", testplane.RingHash(2, 1)),
		xdstest.Cluster("c", "s", testplane.LeastRequest(100)),
		policies(oneOf(&localityv3.WrrLocality{EndpointPickingPolicy: oneOf(new(roundv3.RoundRobin))})),
		policies(oneOf(new(structpb.Struct), &ringv3.RingHash{MinimumRingSize: wrapperspb.UInt64(8)})), // the first is not supported
		policies(oneOf(&maglevv3.Maglev{TableSize: wrapperspb.UInt64(101)})),
		policies(oneOf(&leastv3.LeastRequest{ChoiceCount: wrapperspb.UInt32(3)})),
		policies(oneOf(new(wrrv3.ClientSideWeightedRoundRobin))),
		policies(oneOf(&subsetv3.RandomSubsetting{SubsetSize: wrapperspb.UInt32(2), ChildPolicy: oneOf(new(roundv3.RoundRobin))})),
		policies(oneOf(&typedv3.TypedStruct{TypeUrl: "type.googleapis.com/pick_first", Value: &structpb.Struct{}})),
		policies(oneOf(&typedv3.TypedStruct{TypeUrl: "type.googleapis.com/ring_hash_experimental", Value: &structpb.Struct{Fields: map[string]*structpb.Value{
			"requestHashHeader": structpb.NewStringValue("x")}}})),
		policies(deep),
	}
}

// oneOf is a list of policies in order of preference.
func oneOf(configs ...proto.Message) *clusterv3.LoadBalancingPolicy {
	list := new(clusterv3.LoadBalancingPolicy)
	for _, m := range configs {
		list.Policies = append(list.Policies, &clusterv3.LoadBalancingPolicy_Policy{
			TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "p", TypedConfig: wrap(m)},
		})
	}
	return list
}

// wrap is anypb.New for messages that can be encoded.
func wrap(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// FuzzCluster: T-XDS-19. It takes a CDS resource through decoding to picks by its policy.
func FuzzCluster(f *testing.F) {
	for _, m := range clusterSeeds() {
		f.Add(encode(f, m))
	}
	for _, b := range recorded(f, resource.ClusterType, "-cds", "cluster.txt") {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		var v any
		var err error
		kit.Spend(t, 512*len(value)+256<<10, func() { v, err = resource.Decode(resource.ClusterType, value, resource.Options{}) })
		if err != nil {
			checkRefusal(t, err)
			return
		}
		c := v.(*resource.Cluster)
		if again, err := resource.Decode(resource.ClusterType, slices.Clone(value), resource.Options{}); err != nil || !reflect.DeepEqual(c, again) {
			t.Errorf("decoded twice it is %+v, then %+v, %v", c, again, err)
		}
		checkCluster(t, value, c)
		if c.Kind != resource.ClusterAggregate {
			checkPolicy(t, c.Policy)
		}
	})
}

// checkCluster compares the fields with an obvious counterpart in the message.
func checkCluster(t *testing.T, value []byte, c *resource.Cluster) {
	t.Helper()
	m := new(clusterv3.Cluster)
	if err := proto.Unmarshal(value, m); err != nil {
		t.Fatalf("was accepted, but proto.Unmarshal returns %v", err)
	}
	want := resource.Cluster{Name: m.Name, MaxRequests: 1024, DefaultLimit: true, Metrics: c.Metrics, Outlier: c.Outlier, TLS: c.TLS, Policy: c.Policy, LoadReporting: m.LrsServer != nil,
		Retries: retriesOf(m), Ignored: c.Ignored, Stock: c.Stock}
	if s := m.GetCommonLbConfig().GetOverrideHostStatus(); s != nil {
		want.Override.NotHealthy = !slices.Contains(s.Statuses, corev3.HealthStatus_UNKNOWN) && !slices.Contains(s.Statuses, corev3.HealthStatus_HEALTHY)
		want.Override.Draining = slices.Contains(s.Statuses, corev3.HealthStatus_DRAINING)
	}
	if n := thresholds(m).GetMaxRequests(); n != nil {
		want.MaxRequests, want.DefaultLimit = n.Value, false
	}
	switch {
	case m.GetClusterType() != nil:
		a := new(aggregatev3.ClusterConfig)
		if err := m.GetClusterType().GetTypedConfig().UnmarshalTo(a); err != nil && proto.Unmarshal(m.GetClusterType().GetTypedConfig().GetValue(), a) != nil {
			t.Fatalf("aggregate was accepted, but is malformed: %v", err)
		}
		want.Kind, want.Children = resource.ClusterAggregate, a.Clusters
	case m.GetType() == clusterv3.Cluster_LOGICAL_DNS:
		a := m.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress()
		want.Kind, want.DNSHost, want.DNSTargets = resource.ClusterDNS, a.GetAddress(), []string{net.JoinHostPort(a.GetAddress(), strconv.Itoa(int(a.GetPortValue())))}
	case m.GetType() == clusterv3.Cluster_STRICT_DNS:
		if c.Strict == nil || len(c.DNSTargets) == 0 || c.DNSRefresh < time.Second {
			t.Fatalf("%v has no names", m)
		}
		want.Kind, want.Strict, want.DNSTargets, want.DNSRefresh = resource.ClusterDNS, c.Strict, c.DNSTargets, c.DNSRefresh
	default:
		want.ServiceName = m.GetEdsClusterConfig().GetServiceName()
		if want.EDSService = want.ServiceName; want.EDSService == "" {
			want.EDSService = m.Name
		}
	}
	if !reflect.DeepEqual(*c, want) {
		t.Fatalf("%v\nis decoded to %+v\nwant %+v", m, *c, want)
	}
	if len(m.GetLrsReportEndpointMetrics()) < len(c.Metrics) || slices.ContainsFunc(c.Metrics, func(s string) bool { return !slices.Contains(m.GetLrsReportEndpointMetrics(), s) }) {
		t.Errorf("metrics are %q of %q", c.Metrics, m.GetLrsReportEndpointMetrics())
	}
}

// thresholds returns the thresholds of the default priority, or nil.
func thresholds(m *clusterv3.Cluster) *clusterv3.CircuitBreakers_Thresholds {
	for _, t := range m.GetCircuitBreakers().GetThresholds() {
		if t.GetPriority() == corev3.RoutingPriority_DEFAULT {
			return t
		}
	}
	return nil
}

// retriesOf returns the configured retry limit of a cluster.
func retriesOf(m *clusterv3.Cluster) *picker.RetryLimit {
	t := thresholds(m)
	switch b, n := t.GetRetryBudget(), t.GetMaxRetries(); {
	case b == nil && (n == nil || n.Value == math.MaxUint32):
		return nil
	case b == nil:
		return &picker.RetryLimit{Min: n.Value}
	default:
		l := &picker.RetryLimit{Percent: 20, Min: 3}
		if b.BudgetPercent != nil {
			l.Percent = b.BudgetPercent.Value
		}
		if b.MinRetryConcurrency != nil {
			l.Min = b.MinRetryConcurrency.Value
		}
		return l
	}
}

// checkPolicy checks that an accepted policy has the parameters of its kind, and can be
// formatted and used for picks.
func checkPolicy(t *testing.T, p picker.Policy) {
	t.Helper()
	set := map[picker.PolicyKind]bool{
		picker.PolicyRingHash: p.Ring != nil, picker.PolicyMaglev: p.Ring != nil, picker.PolicyLeastRequest: p.Least != nil,
		picker.PolicyClientWRR: p.WRR != nil, picker.PolicyPickFirst: p.First != nil, picker.PolicyCustom: p.Custom != nil,
		picker.PolicyLeastLatency: p.Latency != nil && p.Latency.Decay > 0,
	}
	if has, needs := set[p.Kind]; needs && !has {
		t.Fatalf("policy %+v lacks its parameters", p)
	}
	if r := p.Ring; r != nil && p.Kind == picker.PolicyRingHash && (r.MinSize < 1 || r.MinSize > r.MaxSize || r.MaxSize > 8<<20) {
		t.Errorf("ring of %d to %d entries", r.MinSize, r.MaxSize)
	}
	if l := p.Least; l != nil && (l.Choices < 2 || l.Choices > 10) {
		t.Errorf("%d choices", l.Choices)
	}
	pickBy(t, p)
}

// FuzzLBPolicy converts the load balancing policies of arbitrary clusters, and
// lists of policies by themselves, by registries of several kinds.
func FuzzLBPolicy(f *testing.F) {
	for _, m := range clusterSeeds() {
		f.Add(encode(f, m), true)
		f.Add(encode(f, m.GetLoadBalancingPolicy()), false)
	}
	f.Add(nested(17), false) // one level more than there may be (A52-REG-7)
	f.Add(nested(16), false)
	f.Add(nested(200), false)
	all := new(lbpolicy.Registry)
	// Without a type of its own, every policy is a round robin or nothing.
	few := all
	for _, name := range []string{"ring_hash.v3.RingHash", "maglev.v3.Maglev", "least_request.v3.LeastRequest", "peak_ewma.v3alpha.PeakEwma", "pick_first.v3.PickFirst",
		"client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin"} {
		few = few.With("envoy.extensions.load_balancing_policies."+name, nil)
	}
	few = few.With("xds.type.v3.TypedStruct", nil).With("udpa.type.v1.TypedStruct", nil)
	f.Fuzz(func(t *testing.T, value []byte, cluster bool) {
		c := new(clusterv3.Cluster)
		list := new(clusterv3.LoadBalancingPolicy)
		if cluster && proto.Unmarshal(value, c) != nil || !cluster && proto.Unmarshal(value, list) != nil {
			return
		}
		if cluster {
			list = c.GetLoadBalancingPolicy()
		}
		for _, r := range []*lbpolicy.Registry{all, few, nil} {
			convert := func() (picker.Policy, error) { return r.OfCluster(c) }
			if !cluster {
				convert = func() (picker.Policy, error) { return r.Convert(list) }
			}
			var p picker.Policy
			var err error
			kit.Spend(t, 512*len(value)+256<<10, func() { p, err = convert() })
			switch again, e := convert(); {
			case (e == nil) != (err == nil) || err == nil && !reflect.DeepEqual(p, again):
				t.Fatalf("converted twice it is %+v, %v, then %+v, %v", p, err, again, e)
			case err == nil && r == few && p.Kind > picker.PolicyRoundRobin && list != nil:
				t.Fatalf("%+v is of a type that was removed", p)
			case err == nil:
				checkPolicy(t, p)
				if n := levels(list); n > 16 {
					t.Fatalf("%d levels were accepted", n)
				}
			}
		}
	})
}

// nested is a round robin inside of n-1 levels of wrr_locality.
func nested(n int) []byte {
	list := oneOf(new(roundv3.RoundRobin))
	for range n - 1 {
		list = oneOf(&localityv3.WrrLocality{EndpointPickingPolicy: list})
	}
	b, err := proto.Marshal(list)
	if err != nil {
		panic(err)
	}
	return b
}

// levels counts the lists of which each but the first is in a wrr_locality at the
// head of the one before. Such an entry is supported, so nothing else counts.
func levels(list *clusterv3.LoadBalancingPolicy) (n int) {
	for list != nil {
		n++
		m := new(localityv3.WrrLocality)
		if len(list.GetPolicies()) == 0 || list.Policies[0].GetTypedExtensionConfig().GetTypedConfig().UnmarshalTo(m) != nil {
			break
		}
		list = m.GetEndpointPickingPolicy()
	}
	return n
}
