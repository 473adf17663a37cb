// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/bench/pickercapture"
	"github.com/xdslb/xdslb/edf"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/ringhash"
)

// BenchmarkHot is the benchmark that make guard and make bench-diff compare: the path of every RPC,
// ours only, on one goroutine, which is measurable on a noisy machine. op=channel is a pick and its
// Done in a real channel; op=rpc adds the interceptors of DialOptions and gRPC's look-up in the
// channel's service config. The other ops are parts of the kernel.
func BenchmarkHot(b *testing.B) {
	b.Run("op=rpc", func(b *testing.B) {
		sc := scenario{localities: 3, perLocality: 10, loadReports: true, drops: true}
		control := startControl(b, sc)
		opts := must(b, func() ([]grpc.DialOption, error) {
			return integrate.DialOptions(integrate.Config{Bootstrap: control.Bootstrap(b.Name()), Linger: -1, Logger: slog.New(slog.DiscardHandler)})
		})
		cc := open(b, sc, "xds:///"+service, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials())))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		p, err := pickercapture.Capture(ctx, cc, method, &testgrpc.Empty{}, &testgrpc.Empty{})
		if err != nil {
			b.Fatal(err)
		}
		p.Info.Ctx = context.WithoutCancel(p.Info.Ctx)
		invoke := func(_ context.Context, method string, _, _ any, cc *grpc.ClientConn, _ ...grpc.CallOption) error {
			if cc.GetMethodConfig(method).Timeout != nil {
				b.Error("the service config has a timeout")
			}
			return p.Do()
		}
		b.ReportAllocs()
		defer charge(b)()
		for b.Loop() {
			_ = integrate.UnaryInterceptor(p.Info.Ctx, method, nil, nil, cc, invoke) // one in a million is dropped
		}
	})
	b.Run("op=channel", func(b *testing.B) {
		sc := scenario{localities: 3, perLocality: 10, loadReports: true, drops: true, routes: 20}
		cc := dial(b, "ours", sc, startControl(b, sc))
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
			_ = p.Do() // one in a million is dropped
		}
	})
	for _, p := range policies {
		b.Run("op=pick/policy="+p.name, func(b *testing.B) {
			k := newKernel(b, 3, 30, "random", p.ours)
			k.env.RequestHash = func(context.Context) (uint64, bool) { return rand.Uint64(), true }
			k.states[0].Version++
			k.snapshot = nil
			k.build(b)
			if k.timed {
				k.runTimed(b, p.ours.Prequal != nil)
				return
			}
			ctx := b.Context()
			b.ReportAllocs()
			defer charge(b)()
			for b.Loop() {
				var r uint64
				if k.snapshot.NeedsRandom() {
					r = rand.Uint64()
				}
				if res := k.snapshot.Pick(ctx, method, r); res.Outcome == picker.Picked {
					k.endpoints[res.Index].Finish(picker.CallOK)
				}
			}
		})
	}
	b.Run("op=edf", func(b *testing.B) {
		s := must(b, edf.Config{Weights: skewed(1000, "random"), Start: 1 << 40}.Schedule)
		var issued atomic.Uint64
		b.ReportAllocs()
		defer charge(b)()
		for b.Loop() {
			sink += s.At(issued.Add(1))
		}
	})
	b.Run("op=ring", func(b *testing.B) {
		r := must(b, func() (*ringhash.Ring, error) { return ringhash.New(hashHosts(1000), 4096, 4096, ringhash.XXH64) })
		hashes := randomHashes()
		b.ReportAllocs()
		defer charge(b)()
		for i := 0; b.Loop(); i++ {
			sink += r.Pick(hashes[i%len(hashes)])
		}
	})
}

// runTimed measures picks of endpoints that time their RPCs, in a separate loop, since the
// other benchmarks should not include its checks. If asks is set, endpoints are probed
// occasionally, which is not measured.
func (k *kernel) runTimed(b *testing.B, asks bool) {
	ctx := b.Context()
	b.ReportAllocs()
	from := cpuTime()
	for i := 0; b.Loop(); i++ {
		if asks && i%answers == 0 {
			begin := cpuTime()
			b.StopTimer()
			k.answer()
			b.StartTimer()
			from += cpuTime() - begin
		}
		if res := k.snapshot.Pick(ctx, method, rand.Uint64()); res.Outcome == picker.Picked {
			k.endpoints[res.Index].FinishTimed(picker.CallOK)
		}
	}
	b.ReportMetric(float64(cpuTime()-from)/float64(b.N), "cpu-ns/op")
}
