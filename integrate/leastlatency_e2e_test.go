// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// peakEWMA asks for Envoy's PeakEwma, whose Go type is in a module of its own.
func peakEWMA(c *clusterv3.Cluster) {
	c.LoadBalancingPolicy = &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "policy", TypedConfig: &anypb.Any{
			TypeUrl: "type.googleapis.com/envoy.extensions.load_balancing_policies.peak_ewma.v3alpha.PeakEwma",
		}},
	}}}
}

// TestLeastLatency: a backend that is slow gets few of the RPCs, in whichever way the policy is
// configured.
func TestLeastLatency(t *testing.T) {
	for name, dial := range map[string]func(t *testing.T, b *bubble) (*grpc.ClientConn, []*xdstest.Backend){
		"TypedStruct": func(t *testing.T, b *bubble) (*grpc.ClientConn, []*xdstest.Backend) {
			return withPolicy(t, b, testplane.Policies(testplane.TypedStruct(integrate.LeastLatency, map[string]any{"decayTime": "5s"})))
		},
		"PeakEwma": func(t *testing.T, b *bubble) (*grpc.ClientConn, []*xdstest.Backend) {
			return withPolicy(t, b, peakEWMA)
		},
		"standalone": func(t *testing.T, b *bubble) (*grpc.ClientConn, []*xdstest.Backend) {
			backends := b.backends(4)
			cc, _ := dialStandalone(t, b.net.Dialer("client"), `{"xdslb_least_latency": {}}`, backends)
			connected(t, cc, backends)
			return cc, backends
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				cc, backends := dial(t, b)
				checkSlowGetsFew(t, cc, backends)
			})
		})
	}
}

// TestPushbackSteers: a backend that rejects a single RPC with RESOURCE_EXHAUSTED gets none for a second, and its
// share again afterwards.
func TestPushbackSteers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		cc, backends := withPolicy(t, b, testplane.Policies(testplane.TypedStruct(integrate.LeastLatency, nil)))
		run := func(n int) uint64 {
			before := backends[0].Calls()
			for range n {
				time.Sleep(10 * time.Millisecond)
				_, _ = call(t, cc)
			}
			return backends[0].Calls() - before
		}
		for _, b := range backends {
			b.SetDelay(20 * time.Millisecond)
		}
		backends[0].SetDelay(10 * time.Millisecond) // the best one by far
		run(100)
		backends[0].Fail(codes.ResourceExhausted)
		for run(1) == 0 {
		}
		backends[0].Fail(codes.OK)
		n := uint64(0) // there is one RPC at a time, so none that was picked before the response
		for begin := time.Now(); time.Since(begin) < 950*time.Millisecond; {
			n += run(1)
		}
		if n > 0 {
			t.Errorf("the backend that pushed back gets %d RPCs within its second, want none", n)
		}
		run(2000)
		if n := run(400); n < 50 {
			t.Errorf("it gets %d of 400 RPCs afterwards, want about 100", n)
		}
	})
}
