// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	typedstructv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

const target = "custom.example"

// withPolicy selects the policy for a cluster.
func withPolicy(t *testing.T, config map[string]any) func(*clusterv3.Cluster) {
	t.Helper()
	value, err := structpb.NewStruct(config)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := anypb.New(&typedstructv3.TypedStruct{TypeUrl: "type.googleapis.com/" + Name, Value: value})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *clusterv3.Cluster) {
		c.LoadBalancingPolicy = &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
			TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: Name, TypedConfig: policy},
		}}}
	}
}

// TestSelected checks that a live control plane selects the policy by TypedStruct, and that
// RPCs follow its inputs: EDS weights of localities and endpoints, and zones. A rejected
// configuration is a NACK, and the last good one remains.
func TestSelected(t *testing.T) {
	backends := xdstest.NewBackends(t, 3, xdstest.BackendOptions{})
	control := xdstest.New(t, xdstest.Options{})
	serve := func(factor float64) {
		t.Helper()
		a := xdstest.Locality{Place: xdstest.Place{Zone: "a"}, Weight: 1, Endpoints: xdstest.BackendEndpoints(backends[:2]...)}
		a.Endpoints[0].Weight, a.Endpoints[1].Weight = 1, 2
		b := xdstest.Locality{Place: xdstest.Place{Zone: "b"}, Weight: 3, Endpoints: xdstest.BackendEndpoints(backends[2:]...)}
		r := xdstest.Service(target, a, b)
		config := map[string]any{"zone": "a", "factor": factor}
		r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, withPolicy(t, config))}
		if err := control.Set(r); err != nil {
			t.Fatal(err)
		}
	}
	serve(2)
	opts, err := integrate.DialOptions(integrate.Config{Bootstrap: control.Bootstrap("node"), Linger: -1})
	if err != nil {
		t.Fatal(err)
	}
	cc, err := grpc.NewClient("xds:///"+target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := testgrpc.NewTestServiceClient(cc)
	shares := func(n int, want ...float64) {
		t.Helper()
		for used := 0; used < len(backends); { // all are connected
			if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}); err != nil {
				t.Fatal(err)
			}
			used = 0
			for _, b := range backends {
				if b.Calls() > 0 {
					used++
				}
			}
		}
		var before []float64
		for _, b := range backends {
			before = append(before, float64(b.Calls()))
		}
		for range n {
			if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}); err != nil {
				t.Fatal(err)
			}
		}
		for i, b := range backends {
			got, exp := float64(b.Calls())-before[i], float64(n)*want[i]
			if math.Abs(got-exp) > 6*math.Sqrt(exp) {
				t.Errorf("backend %d got %.0f of %d RPCs, want %.0f", i, got, n, exp)
			}
		}
	}
	shares(2000, 2./9, 4./9, 3./9) // 1·1·2, 1·2·2 and 3·1

	serve(-1)
	nack, err := control.WaitNACK(ctx, xdstest.CDS)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(nack, "factor -1 is negative") {
		t.Errorf("NACK %q, want the policy's own reason", nack)
	}
	shares(500, 2./9, 4./9, 3./9)
}
