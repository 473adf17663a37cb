// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy_test

import (
	"encoding/json"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/lbpolicy"
)

// a52Cluster is the cluster of A52's configuration example (A52-EX-1).
const a52Cluster = `{"loadBalancingPolicy": {"policies": [{"typedExtensionConfig": {
  "name": "backend-0",
  "typedConfig": {
    "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality",
    "endpointPickingPolicy": {"policies": [
      {"typedExtensionConfig": {
        "name": "backend-1",
        "typedConfig": {
          "@type": "type.googleapis.com/xds.type.v3.TypedStruct",
          "typeUrl": "type.googleapis.com/myorg.MyCustomLeastRequestPolicy",
          "value": {"choiceCount": 2}
        }
      }},
      {"typedExtensionConfig": {
        "name": "backend-2",
        "typedConfig": {
          "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"
        }
      }}
    ]}
  }
}}]}}`

// The example of A52, step by step. gRPC's other implementations pass the JSON of each step to
// a separate LB policy; here the first step yields a policy and a flag, and the snapshot
// implements the rest. The steps are listed for comparison.
func Example_a52() {
	cluster := new(clusterv3.Cluster)
	if err := protojson.Unmarshal([]byte(a52Cluster), cluster); err != nil {
		panic(err)
	}
	policy, err := new(lbpolicy.Registry).OfCluster(cluster)
	if err != nil {
		panic(err)
	}
	fmt.Printf("A custom policy: %v, one for each locality: %v.\n", policy.Kind == picker.PolicyCustom, !policy.Flat)

	// The XdsClient converts the list, and the registry of gRPC has parsed the
	// result by now (A52-NACK-2).
	config := lbpolicy.JSON(policy)
	show("1. CDS update", map[string]any{"lbPolicyConfig": config})
	show("2. xds_cluster_resolver", map[string]any{"xdsLbPolicy": config})
	show("3. priority", map[string]any{
		"children": map[string]any{"priority-1": map[string]any{
			"config": []any{map[string]any{"xds_cluster_impl_experimental": map[string]any{
				"cluster": "ClusterName", "childPolicy": config,
			}}},
			"ignoreReresolutionRequests": false,
		}},
		"priorities": []string{"priority-1"},
	})

	// wrr_locality gives each locality its weight and a child.
	policy.Flat = true // as inside wrr_locality
	targets := map[string]any{}
	for _, l := range []picker.Locality{
		{ID: picker.LocalityID{Zone: "Locality A"}, Weight: 1},
		{ID: picker.LocalityID{Zone: "Locality B"}, Weight: 2},
	} {
		targets[l.ID.Zone] = map[string]any{"weight": l.Weight, "childPolicy": lbpolicy.JSON(policy)}
	}
	show("4. weighted_target", map[string]any{"targets": targets})

	// Output:
	// A custom policy: true, one for each locality: true.
	// 1. CDS update
	// {"lbPolicyConfig":[{"xds_wrr_locality_experimental":{"childPolicy":[{"myorg.MyCustomLeastRequestPolicy":{"choiceCount":2}}]}}]}
	// 2. xds_cluster_resolver
	// {"xdsLbPolicy":[{"xds_wrr_locality_experimental":{"childPolicy":[{"myorg.MyCustomLeastRequestPolicy":{"choiceCount":2}}]}}]}
	// 3. priority
	// {"children":{"priority-1":{"config":[{"xds_cluster_impl_experimental":{"childPolicy":[{"xds_wrr_locality_experimental":{"childPolicy":[{"myorg.MyCustomLeastRequestPolicy":{"choiceCount":2}}]}}],"cluster":"ClusterName"}}],"ignoreReresolutionRequests":false}},"priorities":["priority-1"]}
	// 4. weighted_target
	// {"targets":{"Locality A":{"childPolicy":[{"myorg.MyCustomLeastRequestPolicy":{"choiceCount":2}}],"weight":1},"Locality B":{"childPolicy":[{"myorg.MyCustomLeastRequestPolicy":{"choiceCount":2}}],"weight":2}}}
}

func show(step string, config any) {
	js, err := json.Marshal(config)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n%s\n", step, js)
}
