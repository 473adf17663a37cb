// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that cutting wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// cutting is a codec that does something between the pick of an RPC and its
// message.
type cutting struct {
	encoding.CodecV2
	cut func()
}

func (c cutting) Marshal(v any) (mem.BufferSlice, error) {
	c.cut()
	return c.CodecV2.Marshal(v)
}

// TestReportCut: an RPC whose connection is cut after the pick and before its
// message is sent is not reported as a success (T-LRS-3), although gRPC does not
// pass its error to the balancer.
func TestReportCut(t *testing.T) {
	backends, control := start(t, 1)
	r := service(backends...)
	r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, testplane.LoadReports())}
	set(t, control, r)
	cc := dial(t, control.Bootstrap("n"))
	ctx := minute(t)
	succeed(t, cc)
	codec := cutting{encoding.GetCodecV2("proto"), func() {
		backends[0].Stop()
		cc.WaitForStateChange(ctx, connectivity.Ready)
	}}
	if _, err := call(t, cc, grpc.ForceCodecV2(codec)); status.Code(err) != codes.Unavailable {
		t.Errorf("the RPC whose connection was cut: %v", err)
	}
	want := xdstest.LocalityCounts{Issued: 2, OK: 1, Failed: 1}
	counts := func() xdstest.LocalityCounts {
		c := control.Loads(target, target)
		return c.Total
	}
	if err := control.Wait(ctx, func() bool { return counts().Issued == 2 && counts().InProgress == 0 }); err != nil || counts() != want {
		t.Errorf("%+v are reported, %v, want %+v", counts(), err, want)
	}
}

// TestEventCountersExist checks that the counters of events exist before the first event, since
// Prometheus' increase() does not see the first value of a series.
func TestEventCountersExist(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		control, metrics := b.control(), &kit.Recorder{}
		r := service(b.backends(1)...)
		r.Clusters[0].OutlierDetection = &clusterv3.OutlierDetection{}
		set(t, control, r)
		cc := b.dial(b.config(control), grpc.WithStatsHandler(metrics))
		succeed(t, cc)
		_ = metrics.Sum("xdslb.client.channels") // as a scrape does
		const to = "xds:///" + target
		for _, series := range [][]string{
			{"xdslb.xds_client.nacks", "ClusterResource"},
			{"xdslb.xds_client.nacks", "ListenerResource"},
			{"xdslb.xds_client.resource_updates_invalid", to, "EndpointsResource"},
			{"xdslb.xds_client.server_failure", to},
			{"xdslb.lb.priority_changes", to, target, "down"},
			{"xdslb.lb.priority_changes", to, target, "up"},
			{"xdslb.lb.no_route", to},
			{"xdslb.lb.connections_failed", to, target},
			{"xdslb.lb.connections_lost", to, target},
			{"xdslb.lb.breaker_rejections", target},
			{"xdslb.lb.outlier_detection.ejections_enforced", to, "success_rate"},
			{"xdslb.client.retry_rejections", to, "budget"},
		} {
			if !metrics.Has(series[0], series[1:]...) || metrics.Sum(series[0], series[1:]...) != 0 {
				t.Errorf("%v is missing or not 0", series)
			}
		}
	})
}
