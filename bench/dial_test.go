// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// BenchmarkDial measures the time from NewClient to the end of the first RPC, with 10 endpoints
// in memory and the control plane on loopback. With shared=true the process already has a
// channel to the same target, so that no resources need to be requested.
func BenchmarkDial(b *testing.B) {
	sc := scenario{localities: 1, perLocality: 10}
	for _, shared := range []bool{false, true} {
		for _, impl := range impls {
			if impl == "round_robin" && shared {
				continue // it has nothing to share
			}
			b.Run(fmt.Sprintf("impl=%s/shared=%t", impl, shared), func(b *testing.B) {
				control := startControl(b, sc)
				if shared {
					dial(b, impl, sc, control)
				}
				backend := startBackend(b, false)
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
				defer cancel()
				b.ReportAllocs()
				for b.Loop() {
					target, opts := options(b, impl, sc, control)
					cc, err := grpc.NewClient(target, append(opts, grpc.WithContextDialer(backend.dial))...)
					if err == nil {
						err = cc.Invoke(ctx, method, &testgrpc.Empty{}, &testgrpc.Empty{}, grpc.WaitForReady(true))
					}
					if err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					_ = cc.Close()
					b.StartTimer()
				}
			})
		}
	}
}

// BenchmarkReconnect measures a client that loses its ADS stream, until it has requested its
// 1000 endpoints again. The old resources stay in use in the meantime, so ours delays
// reconnecting by up to eight seconds to protect the control plane (package xds, backoff): the
// relevant figure is processor time.
func BenchmarkReconnect(b *testing.B) {
	sc := scenario{localities: 5, perLocality: 200, weighted: true}
	for _, impl := range []string{"stock", "ours"} {
		b.Run("impl="+impl, func(b *testing.B) {
			control := startControl(b, sc)
			s := start(b, impl, sc, control)
			defer s.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			cpu := cpuTime()
			b.ReportAllocs()
			for b.Loop() {
				before := control.Stats(xdstest.EDS).Requests
				control.BreakStreams()
				if err := control.Wait(ctx, func() bool { return control.Stats(xdstest.EDS).Requests > before }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/1e3, "cpu-µs/op")
		})
	}
}
