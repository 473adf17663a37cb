// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package opentelemetry

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
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
