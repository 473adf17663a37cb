// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/stats"

	"github.com/xdslb/xdslb/bench/tap"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// BenchmarkMetrics is a pick and its Done in a real channel without load reports: without
// metrics, with a recorder that hears of all of them, and with what is opt-in.
func BenchmarkMetrics(b *testing.B) {
	for _, bm := range []struct {
		name   string
		cfg    integrate.Config
		opts   []grpc.DialOption
		policy xdstest.ClusterOption
	}{
		{name: "policy=edf/metrics=none"},
		{name: "policy=edf/metrics=recorded", opts: []grpc.DialOption{grpc.WithStatsHandler(&recorder{})}},
		{name: "policy=edf/metrics=CountCalls", cfg: integrate.Config{CountCalls: true}},
		{name: "policy=least_request/metrics=none", policy: xdstest.LeastRequest(2)},
		{name: "policy=least_request/metrics=CountCalls", policy: xdstest.LeastRequest(2), cfg: integrate.Config{CountCalls: true}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			sc := scenario{localities: 3, perLocality: 10, policy: bm.policy}
			control := startControl(b, sc)
			bm.cfg.Bootstrap, bm.cfg.Linger = control.Bootstrap(b.Name()), -1
			builder := must(b, func() (resolver.Builder, error) { return integrate.NewBuilder(bm.cfg) })
			opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(builder)}
			cc := open(b, sc, "xds:///"+service, append(opts, bm.opts...))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			p, err := tap.Of(ctx, cc, method, &testgrpc.Empty{}, &testgrpc.Empty{})
			if err != nil {
				b.Fatal(err)
			}
			p.Info.Ctx = context.WithoutCancel(p.Info.Ctx)
			b.ReportAllocs()
			defer charge(b)()
			for b.Loop() {
				_ = p.Do()
			}
		})
	}
}

// recorder takes all metrics of a channel, and does nothing with them or with RPCs.
type recorder struct {
	estats.UnimplementedMetricsRecorder
}

// RegisterAsyncReporter looks at what the gauges are, as OpenTelemetry's does.
func (*recorder) RegisterAsyncReporter(_ estats.AsyncMetricReporter, gauges ...estats.AsyncMetric) func() {
	for _, g := range gauges {
		_ = g.Descriptor()
	}
	return func() {}
}

func (*recorder) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*recorder) HandleRPC(context.Context, stats.RPCStats)                         {}
func (*recorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*recorder) HandleConn(context.Context, stats.ConnStats)                       {}
