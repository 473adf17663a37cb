// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package opentelemetry

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	concurrencyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/adaptive_concurrency/v3"
	admissionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/admission_control/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestHedges checks that hedges are counted, as well as hedges rejected by the budget.
func TestHedges(t *testing.T) {
	for _, tt := range []struct {
		budget uint32
		metric string
	}{{1, "xdslb.client.hedges"}, {0, "xdslb.client.retry_rejections"}} {
		t.Run(tt.metric, func(t *testing.T) {
			w := newWorld(t, 2)
			w.cfg.Idempotent = func(string) bool { return true }
			route := xdstest.Route("", service)
			route.GetRoute().RetryPolicy = &routev3.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(1), PerTryTimeout: durationpb.New(time.Millisecond)}
			route.GetRoute().HedgePolicy = &routev3.HedgePolicy{HedgeOnPerTryTimeout: true}
			r := xdstest.Service(service, w.locality("a", 0, w.backends...))
			r.Routes[0] = xdstest.RouteConfig(service, route)
			r.Clusters[0].CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxRetries: wrapperspb.UInt32(tt.budget)}}}
			w.serve(r)
			for _, b := range w.backends {
				b.SetDelay(100 * time.Millisecond)
			}
			if err := w.call(w.dial()); err != nil {
				t.Fatal(err)
			}
			w.await(tt.metric, atLeast(1), "grpc.target", target)
		})
	}
}

// TestAdmission: RPCs that admission control refuses are counted.
func TestAdmission(t *testing.T) {
	w := newWorld(t, 1)
	config, err := anypb.New(&admissionv3.AdmissionControl{
		EvaluationCriteria:      &admissionv3.AdmissionControl_SuccessCriteria_{SuccessCriteria: &admissionv3.AdmissionControl_SuccessCriteria{}},
		SamplingWindow:          durationpb.New(time.Hour),
		MaxRejectionProbability: &corev3.RuntimePercent{DefaultValue: &typev3.Percent{Value: 100}},
	})
	if err != nil {
		t.Fatal(err)
	}
	filter := &hcmv3.HttpFilter{Name: "admission", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: config}}
	r := xdstest.Service(service, w.locality("a", 0, w.backends...))
	r.Listeners = []*listenerv3.Listener{xdstest.Listener(service, service, filter)}
	w.serve(r)
	c := w.dial()
	if err := w.call(c); err != nil {
		t.Fatal(err)
	}
	w.backends[0].Fail(codes.Internal)
	refused := 0
	for range 100 {
		if status.Code(w.call(c)) == codes.Unavailable {
			refused++
		}
	}
	if refused == 0 {
		t.Fatal("no RPC is refused though all fail")
	}
	w.await("xdslb.client.admission_rejections", is(float64(refused)), "grpc.target", target)
}

// TestConcurrency: RPCs that adaptive concurrency refuses are counted, and its limit is read.
func TestConcurrency(t *testing.T) {
	w := newWorld(t, 1)
	config, err := anypb.New(&concurrencyv3.AdaptiveConcurrency{ConcurrencyControllerConfig: &concurrencyv3.AdaptiveConcurrency_GradientControllerConfig{
		GradientControllerConfig: &concurrencyv3.GradientControllerConfig{
			ConcurrencyLimitParams: &concurrencyv3.GradientControllerConfig_ConcurrencyLimitCalculationParams{
				ConcurrencyUpdateInterval: durationpb.New(time.Hour),
			},
			MinRttCalcParams: &concurrencyv3.GradientControllerConfig_MinimumRTTCalculationParams{
				FixedValue: durationpb.New(time.Second), MinConcurrency: wrapperspb.UInt32(1),
			},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	filter := &hcmv3.HttpFilter{Name: "concurrency", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: config}}
	r := xdstest.Service(service, w.locality("a", 0, w.backends...))
	r.Listeners = []*listenerv3.Listener{xdstest.Listener(service, service, filter)}
	w.serve(r)
	c := w.dial()
	if err := w.call(c); err != nil {
		t.Fatal(err)
	}
	w.backends[0].SetDelay(100 * time.Millisecond)
	const calls = 20
	results := make(chan error, calls)
	for range calls {
		go func() { results <- w.call(c) }()
	}
	refused := 0
	for range calls {
		if status.Code(<-results) == codes.Unavailable {
			refused++
		}
	}
	if refused == 0 {
		t.Fatal("no RPC is refused though one may be in flight")
	}
	w.await("xdslb.client.concurrency_rejections", is(float64(refused)), "grpc.target", target)
	w.await("xdslb.client.concurrency_limit", is(1), "grpc.target", target, "grpc.lb.backend_service", service)
}
