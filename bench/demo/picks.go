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
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		p, err := tap.Of(ctx, cc, "/grpc.testing.TestService/EmptyCall", &testgrpc.Empty{}, &testgrpc.Empty{})
		if err != nil {
			return testing.BenchmarkResult{}, err
		}
		return testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if err := p.Do(); err != nil {
					b.Fatal(err)
				}
			}
		}), nil
	}
	theirs, err := measure(stock)
	if err != nil {
		return err
	}
	mine, err := measure(ours)
	if err != nil {
		return err
	}
	show := func(r testing.BenchmarkResult) string {
		return fmt.Sprintf("%.1f ns, %d allocs", float64(r.T.Nanoseconds())/float64(r.N), r.AllocsPerOp())
	}
	s.step("a pick and its Done: stock xDS %s; ours %s", show(theirs), show(mine))
	s.claim(mine.AllocsPerOp() == 0, "allocations per pick", "0", fmt.Sprint(mine.AllocsPerOp()))
	s.claim(mine.NsPerOp()*4 < theirs.NsPerOp(), "ns per pick and Done, against stock "+show(theirs), "< 1/4", show(mine))
	return nil
}
