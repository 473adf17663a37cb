// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/xds"

	"github.com/xdslb/xdslb/bench/pickercapture"
)

func init() { pickercapture.Install(pickercapture.Ours, pickercapture.StockXDS) }

// picks compares the cost of a pick and its Done on the same resources, in the same process,
// with grpc-go's own xDS.
func (s *scene) picks(ctx context.Context, ours *grpc.ClientConn) error {
	s.note("measuring: a few seconds")
	s.load.stop()
	stockResolver, err := xds.NewXDSResolverWithConfigForTesting(s.fleet.control.Bootstrap("demo-stock"))
	if err != nil {
		return err
	}
	stock, err := grpc.NewClient("xds:///"+target, grpc.WithResolvers(stockResolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer stock.Close()
	measure := func(cc *grpc.ClientConn) (testing.BenchmarkResult, error) {
		first, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		p, err := pickercapture.Capture(first, cc, "/grpc.testing.TestService/EmptyCall", &testgrpc.Empty{}, &testgrpc.Empty{})
		if err != nil {
			return testing.BenchmarkResult{}, err
		}
		var failed error
		r := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				if failed = p.Do(); failed == nil && i%4096 == 0 {
					failed = ctx.Err()
				}
				if failed != nil {
					b.FailNow()
				}
			}
		})
		return r, failed
	}
	theirs, err := measure(stock)
	if err != nil {
		return err
	}
	mine, err := measure(ours)
	if err != nil {
		return err
	}
	ns := func(r testing.BenchmarkResult) float64 { return float64(r.T.Nanoseconds()) / float64(r.N) }
	// Times are shown without a verdict, since the machine may be busy.
	s.note("a pick and its Done, same resources, same process: stock %.0f ns and %d allocations, xdslb %.1f ns and %d; 1/%.0f of the time",
		ns(theirs), theirs.AllocsPerOp(), ns(mine), mine.AllocsPerOp(), ns(theirs)/ns(mine))
	s.count("allocations for a pick", 0, mine.AllocsPerOp())
	return nil
}
