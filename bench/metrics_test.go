// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/pickercapture"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
)

// BenchmarkMetrics is a pick and its Done in a real channel without load reports: without
// metrics, and with a recorder that hears of all of them.
func BenchmarkMetrics(b *testing.B) {
	for _, bm := range []struct {
		name   string
		opts   []grpc.DialOption
		policy testplane.ClusterOption
	}{
		{name: "policy=edf/metrics=none"},
		{name: "policy=edf/metrics=recorded", opts: []grpc.DialOption{grpc.WithStatsHandler(&kit.Recorder{})}},
		{name: "policy=least_request/metrics=none", policy: testplane.LeastRequest(2)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			sc := scenario{localities: 3, perLocality: 10, policy: bm.policy}
			control := startControl(b, sc)
			cfg := integrate.Config{Bootstrap: control.Bootstrap(b.Name()), Linger: -1}
			builder := must(b, func() (resolver.Builder, error) { return integrate.NewBuilder(cfg) })
			opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(builder)}
			cc := open(b, sc, "xds:///"+service, append(opts, bm.opts...))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			p, err := pickercapture.Capture(ctx, cc, method, &testgrpc.Empty{}, &testgrpc.Empty{})
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
