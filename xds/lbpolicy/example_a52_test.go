// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy_test

import (
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

// The example of A52: a custom policy for each locality.
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
	// The registry of gRPC has parsed the configuration by now (A52-NACK-2).
	fmt.Printf("%s: %s\n", policy.Custom.Name, policy.Custom.Config)
	// Output:
	// A custom policy: true, one for each locality: true.
	// myorg.MyCustomLeastRequestPolicy: {"choiceCount":2}
}
