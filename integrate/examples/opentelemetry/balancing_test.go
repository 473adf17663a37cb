// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package opentelemetry

import (
	"context"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	subsettingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/orca"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestPriorities: which priority is in use, how often that changes, why endpoints get no
// RPCs, and how their connections fare.
func TestPriorities(t *testing.T) {
	w := newWorld(t, 4)
	high, low := w.backends[:2], w.backends[2:]
	r := xdstest.Service(service, w.locality("a", 0, high...), w.locality("b", 1, low...))
	r.Endpoints[0].Endpoints[1].LbEndpoints[1].HealthStatus = corev3.HealthStatus_DRAINING
	w.serve(r)
	c := w.dial()
	if err := w.call(c); err != nil {
		t.Fatal(err)
	}
	cluster := []string{"grpc.target", target, "grpc.lb.backend_service", service}
	state := func(name string) []string { return append(cluster[:4:4], "xdslb.state", name) }
	reason := func(name string) []string { return append(cluster[:4:4], "xdslb.reason", name) }
	w.await("xdslb.lb.priority", is(0), cluster...)
	w.await("xdslb.lb.endpoints", is(2), state("ready")...)
	w.await("xdslb.lb.endpoints", is(2), state("idle")...)
	w.await("xdslb.lb.endpoints_excluded", is(1), reason("priority")...)
	w.await("xdslb.lb.endpoints_excluded", is(1), reason("draining")...)
	w.await("xdslb.lb.endpoints_excluded", is(0), reason("ejected")...)
	w.await("xdslb.lb.endpoints_excluded", is(0), reason("subset")...)

	for _, b := range high {
		b.Stop()
	}
	w.await("xdslb.lb.priority", is(1), cluster...)
	w.await("xdslb.lb.priority_changes", is(1), append(cluster, "xdslb.direction", "down")...)
	w.await("xdslb.lb.connections_lost", is(2), cluster...)
	w.await("xdslb.lb.connections_failed", atLeast(2), cluster...)
	w.await("xdslb.lb.endpoints", is(2), state("transient_failure")...)

	for _, b := range high {
		if err := b.Start(); err != nil {
			t.Fatal(err)
		}
	}
	w.await("xdslb.lb.priority", is(0), cluster...)
	w.await("xdslb.lb.priority_changes", is(1), append(cluster, "xdslb.direction", "up")...)
}

// TestSubsetIsSeen checks that endpoints outside of the channel's subset (A68) are counted as
// excluded, and not as connected.
func TestSubsetIsSeen(t *testing.T) {
	w := newWorld(t, 3)
	r := xdstest.Service(service, w.locality("a", 0, w.backends...))
	child, err := anypb.New(&roundrobinv3.RoundRobin{})
	if err != nil {
		t.Fatal(err)
	}
	r.Clusters[0] = xdstest.Cluster(service, service, testplane.Policies(&subsettingv3.RandomSubsetting{
		SubsetSize: wrapperspb.UInt32(1),
		ChildPolicy: &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
			TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "child", TypedConfig: child},
		}}},
	}))
	w.serve(r)
	if err := w.call(w.dial()); err != nil {
		t.Fatal(err)
	}
	w.await("xdslb.lb.endpoints_excluded", is(2), "xdslb.reason", "subset")
	w.await("xdslb.lb.endpoints", is(1), "grpc.lb.backend_service", service)
}

// TestOutliers checks that outliers are counted by algorithm, with the reason if they were not
// ejected.
func TestOutliers(t *testing.T) {
	const by = "grpc.lb.outlier_detection.detection_method"
	for _, tt := range []struct {
		name               string
		enforce, maxEject  uint32
		metric, key, value string
		ejected            func(float64) bool
	}{
		{"enforced", 100, 100, "xdslb.lb.outlier_detection.ejections_enforced", by, "failure_percentage", is(1)},
		{"spared", 1, 100, "xdslb.lb.outlier_detection.ejections_unenforced", "grpc.lb.outlier_detection.unenforced_reason", "enforcement_percentage", atLeast(0)},
		{"overflow", 100, 0, "xdslb.lb.outlier_detection.ejections_unenforced", "grpc.lb.outlier_detection.unenforced_reason", "max_ejection_overflow", is(0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 2)
			r := xdstest.Service(service, w.locality("a", 0, w.backends...))
			r.Clusters[0].OutlierDetection = &clusterv3.OutlierDetection{
				Interval:                       durationpb.New(50 * time.Millisecond),
				MaxEjectionPercent:             wrapperspb.UInt32(tt.maxEject),
				EnforcingSuccessRate:           wrapperspb.UInt32(0),
				EnforcingFailurePercentage:     wrapperspb.UInt32(tt.enforce),
				FailurePercentageThreshold:     wrapperspb.UInt32(50),
				FailurePercentageMinimumHosts:  wrapperspb.UInt32(1),
				FailurePercentageRequestVolume: wrapperspb.UInt32(1),
			}
			w.serve(r)
			w.backends[0].Fail(codes.Internal)
			c := w.dial()
			done := make(chan bool)
			defer close(done)
			go func() {
				for {
					select {
					case <-done:
						return
					default:
						_ = w.call(c)
					}
				}
			}()
			w.await(tt.metric, atLeast(1), "grpc.target", target, by, "failure_percentage", tt.key, tt.value)
			w.await("xdslb.lb.endpoints_excluded", tt.ejected, "xdslb.reason", "ejected")
		})
	}
}

// wrr returns the policy of a cluster.
func wrr(blackout, expiration time.Duration) testplane.ClusterOption {
	return testplane.Policies(&wrrv3.ClientSideWeightedRoundRobin{
		BlackoutPeriod:         durationpb.New(blackout),
		WeightExpirationPeriod: durationpb.New(expiration),
		WeightUpdatePeriod:     durationpb.New(100 * time.Millisecond),
	})
}

// TestWeights checks that each update of weights records the weights, and the endpoints without
// one: in their blackout period, or with an expired report.
func TestWeights(t *testing.T) {
	w := newWorld(t, 0)
	w.backends = xdstest.NewBackends(t, 2, xdstest.BackendOptions{Server: []grpc.ServerOption{
		orca.CallMetricsServerOption(nil),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			orca.CallMetricsRecorderFromContext(ctx).SetQPS(100)
			orca.CallMetricsRecorderFromContext(ctx).SetApplicationUtilization(0.5)
			return handle(ctx, req)
		}),
	}})
	labels := []string{"grpc.target", target, "grpc.lb.locality", zone("a"), "grpc.lb.backend_service", service}
	serve := func(policy testplane.ClusterOption) {
		r := xdstest.Service(service, w.locality("a", 0, w.backends...))
		r.Clusters[0] = xdstest.Cluster(service, service, policy)
		w.serve(r)
	}
	call := func(c testgrpc.TestServiceClient) {
		for range 10 {
			if err := w.call(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	serve(wrr(time.Hour, time.Hour))
	c := w.dial()
	call(c)
	w.await("xdslb.lb.wrr.endpoint_weight_not_yet_usable", atLeast(2), labels...)
	w.await("xdslb.lb.wrr.rr_fallback", atLeast(2), labels...)
	w.await("xdslb.lb.wrr.endpoint_weights", atLeast(2), labels...)
	if n, found := w.read("xdslb.lb.wrr.endpoint_weight_stale", labels...); found && n > 0 {
		t.Errorf("%v weights were stale before one was used", n)
	}
	serve(wrr(0, 200*time.Millisecond))
	call(c)
	w.await("xdslb.lb.wrr.endpoint_weight_stale", atLeast(2), labels...)
}
