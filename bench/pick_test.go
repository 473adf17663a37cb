// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/bench/pickercapture"
)

var pickScenarios = []scenario{
	{name: "full/n=30", localities: 3, perLocality: 10, loadReports: true, drops: true},
	{name: "full/n=1000", localities: 5, perLocality: 200, loadReports: true, drops: true},
	{name: "plain/n=30", localities: 1, perLocality: 30},
	{name: "weighted/n=30", localities: 3, perLocality: 10, weighted: true},
	{name: "20routes/n=30", localities: 3, perLocality: 10, routes: 20},
}

// BenchmarkPick measures the part of a pick that gRPC's public API exposes: Pick of the LB
// policy's picker, and Done. full has load reports, a circuit breaker and two drop categories;
// plain has one locality and only the breaker that xDS clusters always have. It excludes
// gRPC's own work around a pick, which is the same for every policy, and stock's config
// selector; BenchmarkSelect includes both, with package overlay.
func BenchmarkPick(b *testing.B) {
	for _, sc := range pickScenarios {
		for _, impl := range impls {
			channel := sync.OnceValue(func() *grpc.ClientConn { return dial(b, impl, sc, startControl(b, sc)) })
			b.Run("impl="+impl+"/case="+sc.name, func(b *testing.B) {
				cc := channel()
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				p, err := pickercapture.Capture(ctx, cc, method, &testgrpc.Empty{}, &testgrpc.Empty{})
				if err != nil {
					b.Fatal(err)
				}
				// The probe's own context values are not part of a pick.
				p.Info.Ctx = plain(p.Info.Ctx)
				b.ReportAllocs()
				b.ResetTimer()
				defer charge(b)()
				b.RunParallel(func(pb *testing.PB) {
					done := balancer.DoneInfo{BytesSent: true, BytesReceived: true}
					for pb.Next() {
						res, err := p.Picker.Pick(p.Info)
						if err != nil {
							continue // a drop, one in a million
						}
						if res.Done != nil {
							res.Done(done)
						}
					}
				})
			})
		}
	}
}

// plain is a context with ctx's values and no deadline or cancellation.
func plain(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }
