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
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/pickercapture"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/picker"
)

// BenchmarkRoutes measures an RPC that n - 1 routes by path do not match: ours and
// round_robin without xDS. Stock matches routes in its config selector, so with package overlay
// the benchmark measures config select, pick and Done for all three.
func BenchmarkRoutes(b *testing.B) {
	for _, n := range []int{1, 20, 100, 1000} {
		sc := scenario{localities: 1, perLocality: 30, routes: n - 1}
		for _, impl := range impls {
			if impl == "stock" && stock.pick == nil {
				continue
			}
			b.Run(fmt.Sprintf("impl=%s/n=%d", impl, n), func(b *testing.B) {
				cc := dial(b, impl, sc, startControl(b, sc))
				op := func() { _ = stock.pick(b.Context(), cc, method) }
				if stock.pick == nil {
					p := capture(b, cc)
					op = func() { _ = p.Do() }
				}
				b.ReportAllocs()
				for b.Loop() {
					op()
				}
			})
		}
	}
}

// capture returns the pick of an RPC on the channel.
func capture(tb testing.TB, cc *grpc.ClientConn) pickercapture.Pick {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := pickercapture.Capture(ctx, cc, method, &testgrpc.Empty{}, &testgrpc.Empty{})
	kit.Must(tb, err)
	p.Info.Ctx = context.WithoutCancel(p.Info.Ctx)
	return p
}

// BenchmarkInterceptor measures the cost of the interceptors of DialOptions for an RPC to a
// target that does not need them.
func BenchmarkInterceptor(b *testing.B) {
	sc := scenario{localities: 1, perLocality: 30}
	cc := dial(b, "ours", sc, startControl(b, sc))
	invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		_ = integrate.UnaryInterceptor(ctx, method, nil, nil, cc, invoke)
	}
}

// The route of an RPC is found without an allocation where paths decide, however
// many there are, and with one for each header that is looked at, which is gRPC's
// own.
func TestRouteAllocs(t *testing.T) {
	ctx := metadata.AppendToOutgoingContext(t.Context(), "a", "x", "b", "x", "c", "x")
	for _, n := range []int{1, 20, 100, 1000} {
		for headers := range 4 {
			k := newKernel(t, 1, 10, "equal", picker.Policy{})
			to := k.cfg.Routes[0].Clusters
			k.cfg.Routes = nil
			for i := range n - 1 {
				r := picker.Route{Path: picker.StringMatch{Value: fmt.Sprintf("/package.Service%d/", i)}, Clusters: to}
				if headers > 0 {
					r.Path.Value = "/" // so that the headers decide
				}
				for _, name := range []string{"a", "b", "c"}[:headers] {
					// The last of them does not match.
					r.Headers = append(r.Headers, picker.HeaderMatch{Name: name, Kind: picker.HeaderPresent, Present: len(r.Headers) < headers-1})
				}
				k.cfg.Routes = append(k.cfg.Routes, r)
			}
			k.cfg.Routes = append(k.cfg.Routes, picker.Route{Clusters: to})
			k.build(t)
			want := float64(headers)
			if n == 1 {
				want = 0
			}
			if route, _, _ := k.snapshot.Match(ctx, method, 0); int(route) != n-1 {
				t.Fatalf("%d routes, %d headers: route %d, want the last", n, headers, route)
			}
			if got := allocs(want, 100, func() { k.snapshot.Match(ctx, method, 0) }); got != want {
				t.Errorf("%d routes, %d headers: %v allocations, want %v", n, headers, got, want)
			}
		}
	}
}
