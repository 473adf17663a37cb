// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/picker"
)

// TestLateEstimate: of RPCs that take different times, about one in 46 takes less than the
// estimate, before and after they become ten times faster or slower.
func TestLateEstimate(t *testing.T) {
	for name, draw := range map[string]func(*rand.Rand) float64{
		"uniform":     func(r *rand.Rand) float64 { return r.Float64() },
		"exponential": func(r *rand.Rand) float64 { return r.ExpFloat64() },
		"shifted":     func(r *rand.Rand) float64 { return 1 + r.ExpFloat64() },
	} {
		rng := rand.New(rand.NewPCG(1, 1))
		var l lateness
		for _, mean := range []time.Duration{100 * time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
			const n = 20000
			below := 0
			for i := range n + 2000 {
				took := time.Duration(float64(mean) * draw(rng))
				if i >= 2000 && took < time.Duration(l.estimate.Load()) {
					below++
				}
				l.observe(took)
			}
			// The standard deviation of 435 is 21; the estimate's own variation adds to it.
			if below < 300 || below > 600 {
				t.Errorf("%s, %v: %d of %d RPCs are faster than the estimate, want 435 or so", name, mean, below, n)
			}
		}
	}
}

// TestRefuseLate: an RPC with less time left than RPCs take gets no attempt, nor a retry
// for which there is none left; others do, and those without a deadline; one in twenty is
// tried; and when RPCs have become faster, none is refused any more.
func TestRefuseLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		l := NewLink(LinkOptions{Update: func() {}})
		defer l.Close()
		l.bind(new(grpc.ClientConn), 5)
		retry := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable), uint32(codes.DeadlineExceeded)}, MaxAttempts: 3, BaseBackoff: 100 * ms, MaxBackoff: 100 * ms}
		p := &plan{late: new(lateness), retry: retry}
		takes, attempts := 100*ms, 0
		var fails error
		do := func(timeout time.Duration) error {
			call := settledCall(l)
			call.plan = p
			ctx := context.WithValue(t.Context(), callKey{}, call)
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			return call.unary(func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				attempts++
				if err := pause(ctx, takes); err != nil {
					return err
				}
				return fails
			})(ctx, "/s/m", new(emptypb.Empty), nil, nil)
		}
		expect := func(what string, n int, code codes.Code, err error) {
			t.Helper()
			if attempts != n || status.Code(err) != code {
				t.Errorf("%s: %d attempts, and %v; want %d, and %v", what, attempts, err, n, code)
			}
			attempts = 0
		}
		err := do(20 * ms)
		expect("nothing is known yet", 1, codes.DeadlineExceeded, err)
		for range 1000 {
			_ = do(0)
		}
		attempts = 0
		begin := time.Now()
		err = do(20 * ms)
		expect("late", 0, codes.DeadlineExceeded, err)
		if took := time.Since(begin); took > 0 {
			t.Errorf("an RPC is late, and ends after %v", took)
		}
		err = do(200 * ms)
		expect("in time", 1, codes.OK, err)
		err = do(0)
		expect("without a deadline", 1, codes.OK, err)
		fails = status.Error(codes.Unavailable, "x")
		err = do(250 * ms)
		expect("late after a back-off", 1, codes.DeadlineExceeded, err)
		err = do(time.Second)
		expect("in time after a back-off", 3, codes.Unavailable, err)
		fails = nil
		if got := l.Late(); got != 2 {
			t.Errorf("%d attempts are counted as refused, want 2", got)
		}
		for range 200 {
			_ = do(20 * ms)
		}
		if attempts != 10 {
			t.Errorf("%d of 200 RPCs that are late are tried, want 10", attempts)
		}
		takes, attempts = 5*ms, 0
		refused := 0
		for i := range 400 {
			if do(20*ms) != nil {
				if refused++; i > 300 {
					t.Fatalf("RPC %d is refused after RPCs have become faster", i)
				}
			}
		}
		if refused == 0 {
			t.Error("no RPC is refused as RPCs become faster")
		}
		if p.late.refuses(0) != true || new(lateness).refuses(-1) != true {
			t.Error("a deadline that has passed is not late")
		}
	})
}
