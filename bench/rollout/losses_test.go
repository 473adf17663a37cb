// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	sessionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// filtered adds an HTTP filter.
func filtered(t *testing.T, name string, config proto.Message, disabled bool) func(*xdstest.Resources) {
	return func(r *xdstest.Resources) {
		f := &hcmv3.HttpFilter{Name: name, Disabled: disabled, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: anyOf(t, config)}}
		r.Listeners[0] = xdstest.Listener(r.Listeners[0].Name, r.Routes[0].Name, f)
	}
}

// TestLosses makes RPCs on a channel of ours, whose status says whether a roll-back would lose RPCs, and
// on a channel to the same target that XDSLB_DISABLE hands to stock: they fail if and only if the status
// says so. The log has one WARN for each target whose RPCs would fail.
func TestLosses(t *testing.T) {
	abort := &faultv3.HTTPFault{Abort: &faultv3.FaultAbort{
		ErrorType:  &faultv3.FaultAbort_GrpcStatus{GrpcStatus: uint32(codes.Aborted)},
		Percentage: &typev3.FractionalPercent{Numerator: 100},
	}}
	for name, tt := range map[string]struct {
		feature string // of the WARN; empty if no RPCs are lost
		change  func(*xdstest.Resources)
	}{
		"plain": {"", nil},
		"differs": {"", func(r *xdstest.Resources) {
			r.Endpoints[0].Endpoints[0].LbEndpoints[0].LoadBalancingWeight = wrapperspb.UInt32(3)
			r.Routes[0].VirtualHosts[0].Routes[0].RequestHeadersToRemove = []string{"x"}
		}},
		"maglev":  {"lb_policy: MAGLEV", func(r *xdstest.Resources) { r.Clusters[0].LbPolicy = clusterv3.Cluster_MAGLEV }},
		"session": {"StatefulSession", filtered(t, "s", &sessionv3.StatefulSession{}, false)},
		"override": {"without a configuration", func(r *xdstest.Resources) {
			filtered(t, "f", abort, false)(r)
			r.Routes[0].VirtualHosts[0].Routes[0].TypedPerFilterConfig = map[string]*anypb.Any{"f": anyOf(t, &routev3.FilterConfig{Disabled: true})}
		}},
		"disabled fault": {"a disabled fault filter", filtered(t, "f", abort, true)},
		"missing child": {"one of its children", func(r *xdstest.Resources) {
			child := r.Clusters[0]
			r.Clusters = append(r.Clusters, &clusterv3.Cluster{Name: child.Name + ".all", ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
				Name: "envoy.clusters.aggregate", TypedConfig: anyOf(t, &aggregatev3.ClusterConfig{Clusters: []string{child.Name, "no-such-cluster"}}),
			}}})
			r.Routes[0].VirtualHosts[0].Routes[0] = xdstest.Route("", child.Name+".all")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "missing child" {
				t.Skip("each client waits for the child for 15 s")
			}
			target, _ := service(t, 2, tt.change)
			t.Setenv("XDSLB_DISABLE", "")
			for range 2 { // channels, which log once
				cc := closing(t)(integrate.Config{Linger: -1}.NewClient("xds:///"+target, plaintext))
				if err := call(t, cc); err != nil {
					t.Fatalf("with xdslb: %v", err)
				}
				s, err := integrate.StatusOf(cc)
				kit.Must(t, err)
				loses := len(s.StockDifferences) > 0 && s.StockDifferences[0].LosesRPCs
				if loses != (tt.feature != "") {
					t.Errorf("the status has %+v", s.StockDifferences)
				}
			}
			if tt.feature != "" {
				lines.WantOne(t, "WARN xdslb: a roll-back to google.golang.org/grpc/xds by XDSLB_DISABLE would lose RPCs", target, tt.feature, "remedy=")
			}
			t.Setenv("XDSLB_DISABLE", "all")
			cc := closing(t)(integrate.NewClient("xds:///"+target, plaintext))
			if err := call(t, cc); (err != nil) != (tt.feature != "") {
				t.Errorf("with stock: %v", err)
			}
			if n := len(lines.With("would lose RPCs", target)); tt.feature == "" && n > 0 {
				t.Errorf("%d lines about RPCs that would be lost, want none", n)
			}
		})
	}
}
