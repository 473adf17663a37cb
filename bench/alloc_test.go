// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/pickercapture"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/picker"
)

// allocs is testing.AllocsPerRun without concurrent allocations, such as those of connections
// that are being established, or of an earlier test's connections that end: if the result
// exceeds want, the minimum of twenty attempts counts.
func allocs(want float64, runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for range 19 {
		if least <= want {
			break
		}
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}

// A pick and the end of its RPC do not allocate with any policy, except for the slice that gRPC
// needs to return a header. Unlike a time, this can be tested on any machine.
func TestPolicyAllocs(t *testing.T) {
	ctx := sessions()[0]
	for _, p := range policies {
		k := newKernel(t, 3, 30, "random", p.ours)
		want := 0.
		if p.ours.Prequal != nil { // for a second time, as many probes as there are picks being known
			for range 2 {
				for range answers {
					k.finish(k.snapshot.Pick(ctx, method, rand.Uint64()).Index)
				}
				k.answer()
			}
		}
		if p.ours.Ring != nil {
			want = 1
		}
		got := allocs(want, 1000, func() {
			if res := k.snapshot.Pick(ctx, method, 12345); res.Outcome == picker.Picked {
				k.finish(res.Index)
			}
		})
		if got != want {
			t.Errorf("%s: %v allocations, want %v", p.name, got, want)
		}
	}
}

// A whole RPC of a target with scheme xdslb, with all features enabled and the interceptors
// installed, allocates no more than one of plain round robin without xDS, including the
// server's allocations.
func TestRPCAllocs(t *testing.T) {
	sc := scenario{localities: 3, perLocality: 10, loadReports: true, drops: true}
	control := startControl(t, sc)
	ours := must(t, func() ([]grpc.DialOption, error) {
		return integrate.DialOptions(integrate.Config{Bootstrap: control.Bootstrap(t.Name()), Linger: -1})
	})
	target, plain := options(t, "round_robin", sc, control)
	invoke := func(cc *grpc.ClientConn) func() {
		return func() { _ = cc.Invoke(t.Context(), method, &testgrpc.Empty{}, &testgrpc.Empty{}) }
	}
	floor := testing.AllocsPerRun(2000, invoke(open(t, sc, target, plain)))
	got := allocs(floor+1, 2000, invoke(open(t, sc, "xdslb:///"+service, append(ours, grpc.WithTransportCredentials(insecure.NewCredentials())))))
	t.Logf("%v allocations, round robin %v", got, floor)
	if got > floor+1 {
		t.Errorf("%v allocations in an RPC, want no more than the %v of round robin", got, floor)
	}
}

// The same through a real channel, with load reports, drops, a breaker and
// routes that do not match.
func TestChannelAllocs(t *testing.T) {
	sc := scenario{localities: 3, perLocality: 10, loadReports: true, drops: true, routes: 20}
	cc := dial(t, "ours", sc, startControl(t, sc))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := pickercapture.Capture(ctx, cc, method, &testgrpc.Empty{}, &testgrpc.Empty{})
	kit.Must(t, err)
	p.Info.Ctx = context.WithoutCancel(p.Info.Ctx)
	if got := allocs(0, 1000, func() { _ = p.Do() }); got != 0 {
		t.Errorf("%v allocations in a pick, want none", got)
	}
}
