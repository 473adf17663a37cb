// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"encoding/json"
	"os"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// TestIstio converts the clusters that Istio 1.29 sends to proxyless clients.
func TestIstio(t *testing.T) {
	for file, want := range map[string]string{
		"ring-hash":          "RingHash Flat=true Ring={MinSize:1024 MaxSize:8388608 XXH64:true RequestHeader: BalanceFactor:0}",
		"ring-hash-weighted": "RingHash Flat=true Ring={MinSize:1024 MaxSize:8388608 XXH64:true RequestHeader: BalanceFactor:0}",
		"least-request":      "LeastRequest Least={Choices:2 IgnoreWeights:false}",
	} {
		data, err := os.ReadFile("testdata/istio/" + file + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var clusters []json.RawMessage
		if err := json.Unmarshal(data, &clusters); err != nil || len(clusters) == 0 {
			t.Fatalf("%s: %d clusters, %v", file, len(clusters), err)
		}
		for _, js := range clusters {
			var c clusterv3.Cluster
			if err := protojson.Unmarshal(js, &c); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			got, err := new(Registry).OfCluster(&c)
			if err != nil || describe(got) != want {
				t.Errorf("%s: got %s, %v, want %s", file, describe(got), err, want)
			}
		}
	}
}

// TestLegacyMeans checks that each value of lb_policy is short for a list (A52's
// backward compatibility, A42, A48; EDF-14 for ROUND_ROBIN).
func TestLegacyMeans(t *testing.T) {
	for value, list := range map[clusterv3.Cluster_LbPolicy]proto.Message{
		clusterv3.Cluster_ROUND_ROBIN:   weighted(listOf(t, robin)),
		clusterv3.Cluster_LEAST_REQUEST: weighted(listOf(t, choices(2))),
		clusterv3.Cluster_RANDOM:        weighted(listOf(t, &randomv3.Random{})),
		clusterv3.Cluster_RING_HASH:     &ringhashv3.RingHash{HashFunction: ringhashv3.RingHash_XX_HASH},
	} {
		old, err1 := new(Registry).OfCluster(&clusterv3.Cluster{LbPolicy: value})
		now, err2 := new(Registry).OfCluster(&clusterv3.Cluster{LoadBalancingPolicy: listOf(t, list)})
		if err1 != nil || err2 != nil || describe(old) != describe(now) {
			t.Errorf("%v: %s, %v differs from %s, %v", value, describe(old), err1, describe(now), err2)
		}
	}
}
