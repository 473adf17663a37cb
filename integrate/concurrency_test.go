// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	concurrencyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/adaptive_concurrency/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// adaptiveConcurrency is the filter with a limit from some RPCs to others, that goes by a
// fixed time.
func adaptiveConcurrency(least, most uint32, should time.Duration) *concurrencyv3.AdaptiveConcurrency {
	return &concurrencyv3.AdaptiveConcurrency{ConcurrencyControllerConfig: &concurrencyv3.AdaptiveConcurrency_GradientControllerConfig{
		GradientControllerConfig: &concurrencyv3.GradientControllerConfig{
			ConcurrencyLimitParams: &concurrencyv3.GradientControllerConfig_ConcurrencyLimitCalculationParams{
				ConcurrencyUpdateInterval: durationpb.New(100 * time.Millisecond), MaxConcurrencyLimit: wrapperspb.UInt32(most),
			},
			MinRttCalcParams: &concurrencyv3.GradientControllerConfig_MinimumRTTCalculationParams{
				FixedValue: durationpb.New(should), MinConcurrency: wrapperspb.UInt32(least),
			},
		},
	}}
}

// limitedHere reports whether an error is that of adaptive concurrency.
func limitedHere(t *testing.T, err error) bool {
	t.Helper()
	return refusedBy(t, err, integrate.ReasonConcurrency, map[string]string{"filter": "concurrency", "cluster": "a"})
}

// TestAdaptiveConcurrency: while two RPCs are under way a third is refused, unary or not,
// before anything is sent and without retries, whoever makes those. It can be seen, an update
// of something else leaves it so, and a route that turns the filter off has none of it.
func TestAdaptiveConcurrency(t *testing.T) {
	for name, route := range map[string]*routev3.Route{
		"retries by gRPC":        retried(xdstest.Route("/grpc.testing.TestService/", "a"), 2),
		"retries by interceptor": retried(absent(xdstest.Route("/grpc.testing.TestService/", "a"), "nobody"), 2),
	} {
		t.Run(name, func(t *testing.T) {
			backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
			control := xdstest.New(t, xdstest.Options{})
			off := xdstest.Route("/off/", "a")
			off.TypedPerFilterConfig = map[string]*anypb.Any{"concurrency": anyOf(t, &routev3.FilterConfig{Disabled: true})}
			resources := clusters(backends, []*hcmv3.HttpFilter{httpFilter(t, "concurrency", adaptiveConcurrency(2, 2, time.Hour))}, route, off)
			set(t, control, resources)
			metrics := &xdstest.Recorder{}
			cc := dial(t, control.Bootstrap(t.Name()), grpc.WithStatsHandler(metrics))
			if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
				t.Fatal(err)
			}
			backends[0].SetDelay(time.Hour)
			before := backends[0].Calls()
			ctx, cancel := context.WithCancel(t.Context())
			var flying sync.WaitGroup
			for range 2 {
				flying.Go(func() {
					if _, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}); status.Code(err) != codes.Canceled {
						t.Errorf("an RPC that is canceled ends with %v", err)
					}
				})
			}
			kit.WaitFor(t, "two RPCs at the backend", func() bool { return backends[0].Calls() == before+2 })
			refuse := func() {
				t.Helper()
				if _, err := call(t, cc); !limitedHere(t, err) {
					t.Errorf("a third RPC ends with %v", err)
				}
				if _, err := testgrpc.NewTestServiceClient(cc).StreamingOutputCall(t.Context(), &testgrpc.StreamingOutputCallRequest{}); !limitedHere(t, err) {
					t.Errorf("a third RPC, which the server streams, ends with %v", err)
				}
			}
			refuse()
			resources.Clusters = append(resources.Clusters, xdstest.Cluster("b", "a"))
			resources.Routes[0].VirtualHosts[0].Routes = append(resources.Routes[0].VirtualHosts[0].Routes, xdstest.Route("/other/", "b"))
			set(t, control, resources)
			kit.WaitFor(t, "the concurrency limits of both clusters", func() bool { return len(statusOf(t, cc).Concurrency) == 2 }) // once it is published
			refuse()
			s := statusOf(t, cc).Concurrency
			if len(s) != 2 || s[1].Cluster != "b" || s[0] != (report.ConcurrencyStatus{Filter: "concurrency", Cluster: "a", Limit: 2, InFlight: 2, MinRTT: 3600, SampleRTT: s[0].SampleRTT, Refused: 4}) {
				t.Errorf("status is %+v", s)
			}
			x, err := integrate.Explain(context.Background(), cc, "/grpc.testing.TestService/EmptyCall")
			if err != nil || !strings.Contains(x.String(), "limit of 2 RPCs in flight, 2 in flight") {
				t.Errorf("the explanation does not tell: %v\n%v", err, x)
			}
			if n := metrics.Sum("xdslb.client.concurrency_rejections", "xds:///"+target); n != 4 {
				t.Errorf("the metric counts %v RPCs, want 4", n)
			}
			if n := backends[0].Calls() - before; n != 2 {
				t.Errorf("the backend got %d RPCs, want 2", n)
			}
			if err := cc.Invoke(t.Context(), "/off/m", &testgrpc.Empty{}, &testgrpc.Empty{}); err == nil || limitedHere(t, err) {
				t.Errorf("where the filter is off, an RPC ends with %v", err)
			}
			cancel()
			flying.Wait()
			backends[0].SetDelay(0)
			if _, err := call(t, cc); err != nil {
				t.Errorf("when the others have ended, an RPC ends with %v", err)
			}
			if s := statusOf(t, cc).Concurrency[0]; s.InFlight != 0 {
				t.Errorf("%d RPCs are in flight after all have ended", s.InFlight)
			}
		})
	}
}
