// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/picker"
)

// A step is the fate of an attempt in TestHedge.
type step struct {
	after    time.Duration
	code     codes.Code
	pushback string
	headers  bool
	refused  bool // by a pick
}

// hedge hedges an RPC whose attempts are calls of attempt.
func hedge(ctx context.Context, policy *picker.RetryPolicy, req, reply proto.Message, opts []grpc.CallOption, attempt func(ctx context.Context, req, reply proto.Message, opts []grpc.CallOption) error) error {
	invoker := func(ctx context.Context, _ string, req, reply any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
		return attempt(ctx, req.(proto.Message), reply.(proto.Message), opts)
	}
	return unaryRPC{call: planned(ctx, plan{retry: policy, hedge: true}), invoker: invoker, ctx: ctx, req: req, reply: reply, opts: opts}.hedge()
}

// TestHedge: when attempts are made and which one decides, in milliseconds. The hedging
// delay is 100 ms and the back-off about 10 ms.
func TestHedge(t *testing.T) {
	const ms = time.Millisecond
	stall := step{after: 5000 * ms}
	unavailable := func(after time.Duration) step { return step{after: after, code: codes.Unavailable} }
	for _, tt := range []struct {
		name    string
		steps   []step
		limit   int
		budget  *picker.RetryLimit
		timeout time.Duration
		picked  time.Duration // of the first attempt
		starts  []int64       // of attempts, to 5 ms
		end     int64
		winner  int // from 1; 0 is none
		code    codes.Code
	}{
		{name: "in time", steps: []step{{after: 50 * ms}}, starts: []int64{0}, end: 50, winner: 1},
		{name: "the second is faster", steps: []step{stall, {after: 20 * ms}}, starts: []int64{0, 100}, end: 120, winner: 2},
		{name: "the first is faster", steps: []step{{after: 150 * ms}, stall}, starts: []int64{0, 100}, end: 150, winner: 1},
		{name: "the third", steps: []step{stall, stall, {after: 20 * ms}}, starts: []int64{0, 100, 200}, end: 220, winner: 3},
		{name: "limit", limit: 2, steps: []step{{after: 600 * ms}, {after: 700 * ms}}, starts: []int64{0, 100}, end: 600, winner: 1},
		{name: "a failure that is retried", steps: []step{unavailable(50 * ms), {after: 20 * ms}}, starts: []int64{0, 60}, end: 80, winner: 2},
		{name: "a hedge that fails", steps: []step{stall, unavailable(20 * ms), {after: 20 * ms}}, starts: []int64{0, 100, 130}, end: 150, winner: 3},
		{name: "a hedge that fails, and no more", limit: 2, steps: []step{{after: 300 * ms}, unavailable(20 * ms)}, starts: []int64{0, 100}, end: 300, winner: 1},
		{name: "all fail", limit: 2, steps: []step{unavailable(300 * ms), unavailable(20 * ms)}, starts: []int64{0, 100}, end: 300, code: codes.Unavailable},
		{name: "a fatal code", steps: []step{stall, {after: 20 * ms, code: codes.NotFound}}, starts: []int64{0, 100}, end: 120, code: codes.NotFound},
		{name: "after headers", steps: []step{stall, {after: 20 * ms, code: codes.Unavailable, headers: true}}, starts: []int64{0, 100}, end: 120, code: codes.Unavailable},
		{name: "push-back stops it", steps: []step{{after: 900 * ms}, {after: 20 * ms, code: codes.Unavailable, pushback: "-1"}}, starts: []int64{0, 100}, end: 900, winner: 1},
		{name: "push-back of all", steps: []step{unavailable(400 * ms), {after: 20 * ms, code: codes.Unavailable, pushback: "-1"}}, starts: []int64{0, 100}, end: 400, code: codes.Unavailable},
		{name: "push-back puts it off", steps: []step{stall, {after: 20 * ms, code: codes.Unavailable, pushback: "500"}, {after: 20 * ms}}, starts: []int64{0, 100, 620}, end: 640, winner: 3},
		{name: "a hedge that a pick refuses", steps: []step{{after: 300 * ms}, {code: codes.Unavailable, refused: true}}, starts: []int64{0, 100}, end: 300, winner: 1},
		{name: "no budget", budget: &picker.RetryLimit{}, steps: []step{{after: 300 * ms}}, starts: []int64{0}, end: 300, winner: 1},
		{name: "a budget of one", budget: &picker.RetryLimit{Min: 1}, steps: []step{{after: 500 * ms}, unavailable(150 * ms), {after: 50 * ms}}, starts: []int64{0, 100, 260}, end: 310, winner: 3},
		{name: "no pick yet", picked: 250 * ms, steps: []step{stall, {after: 20 * ms}}, starts: []int64{0, 300}, end: 320, winner: 2},
		{name: "no pick yet, and no budget", picked: 250 * ms, budget: &picker.RetryLimit{}, steps: []step{{after: 600 * ms}}, starts: []int64{0}, end: 600, winner: 1},
		{name: "deadline", timeout: 250 * ms, steps: []step{stall, stall, stall}, starts: []int64{0, 100, 200}, end: 250, code: codes.DeadlineExceeded},
		{name: "deadline in a back-off", timeout: 300 * ms, steps: []step{{after: 20 * ms, code: codes.Unavailable, pushback: "5000"}}, starts: []int64{0}, end: 300, code: codes.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			var running atomic.Int64
			l := NewChannel(link.Options{}, ChannelOptions{})
			defer l.Close()
			l.Bind(new(grpc.ClientConn), 5)
			_, active := limitRetries(l, tt.budget)
			call := settledCall(l)
			call.matched.name = "c"
			if tt.picked > 0 {
				call.committed.Store(nil)
				time.AfterFunc(tt.picked, func() { call.committed.Store(&call.matched) })
			}
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), callKey{}, call))
			if tt.timeout > 0 {
				ctx, cancel = context.WithTimeout(ctx, tt.timeout)
			}
			defer cancel()
			limit := tt.limit
			if limit == 0 {
				limit = 3
			}
			policy := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: limit, BaseBackoff: 10 * ms, MaxBackoff: 10 * ms, PerTryTimeout: 100 * ms}
			begin, reply := time.Now(), new(wrapperspb.Int32Value)
			var mu sync.Mutex
			var starts []int64
			var trailer metadata.MD
			err := hedge(ctx, policy, new(emptypb.Empty), reply, []grpc.CallOption{grpc.Trailer(&trailer)}, func(ctx context.Context, _, reply proto.Message, opts []grpc.CallOption) error {
				running.Add(1)
				defer running.Add(-1)
				mu.Lock()
				n := len(starts)
				at := time.Since(begin).Milliseconds()
				starts = append(starts, at)
				mu.Unlock()
				if n >= len(tt.steps) {
					t.Errorf("%s: attempt %d is made after %d ms, want %d attempts", tt.name, n+1, at, len(tt.steps))
					return status.Error(codes.Internal, "an attempt too many")
				}
				s := tt.steps[n]
				if err := Pause(ctx, s.after); err != nil {
					runtime.Gosched()
					proto.Merge(reply, wrapperspb.Int32(99)) // part of an answer
					return err
				}
				for _, o := range opts {
					switch o := o.(type) {
					case grpc.HeaderCallOption:
						if s.headers || s.code == codes.OK {
							*o.HeaderAddr = metadata.Pairs("k", "v")
						}
					case grpc.TrailerCallOption:
						*o.TrailerAddr = metadata.Pairs("attempt", string(rune('1'+n)))
						if s.pushback != "" {
							o.TrailerAddr.Set(pushbackKey, s.pushback)
						}
					}
				}
				if s.refused {
					call.Failed(status.Error(s.code, "x"))
				}
				if s.code != codes.OK {
					return status.Error(s.code, "x")
				}
				proto.Reset(reply) // as gRPC's codec does
				proto.Merge(reply, wrapperspb.Int32(int32(n+1)))
				return nil
			})
			end := time.Since(begin).Milliseconds()
			synctest.Wait() // for attempts that were canceled
			near := func(a, b int64) bool { return a-b < 5 && b-a < 5 }
			if !slices.EqualFunc(starts, tt.starts, near) || !near(end, tt.end) || tt.winner > 0 && int(reply.Value) != tt.winner || status.Code(err) != tt.code {
				t.Errorf("%s: attempts at %v, at %d the reply of %d and %v; want attempts at %v, at %d the reply of %d and %v",
					tt.name, starts, end, reply.Value, err, tt.starts, tt.end, tt.winner, tt.code)
			}
			if want := string(rune('0' + tt.winner)); tt.winner > 0 && (len(trailer["attempt"]) != 1 || trailer["attempt"][0] != want) {
				t.Errorf("%s: trailer %v, want that of attempt %s", tt.name, trailer, want)
			}
			if n := running.Load(); n != 0 || active.Load() != 0 {
				t.Errorf("%s: %d attempts go on, and %d count as retries", tt.name, n, active.Load())
			}
		})
	}
}

// TestHedgedTail: of RPCs that take 5 to 15 ms 1 % stall for a second. Hedged after 20 ms, the
// 999th of 1000 is at least 80 % faster, for at most 5 % more attempts.
func TestHedgedTail(t *testing.T) {
	const rpcs = 20_000
	run := func(policy *picker.RetryPolicy) (p999 time.Duration, extra float64) {
		rng := rand.New(rand.NewPCG(1, 2))
		took := make([]time.Duration, rpcs)
		var mu sync.Mutex
		attempts := 0
		synctest.Test(t, func(t *testing.T) {
			l := NewChannel(link.Options{}, ChannelOptions{})
			defer l.Close()
			l.Bind(new(grpc.ClientConn), 5)
			for i := range took {
				begin := time.Now()
				ctx := context.WithValue(t.Context(), callKey{}, settledCall(l))
				kit.Must(t, hedge(ctx, policy, new(emptypb.Empty), new(wrapperspb.Int32Value), nil, func(ctx context.Context, _, _ proto.Message, _ []grpc.CallOption) error {
					mu.Lock()
					attempts++
					wait := 5*time.Millisecond + time.Duration(rng.IntN(1e7))
					if rng.IntN(100) == 0 {
						wait = time.Second
					}
					mu.Unlock()
					return Pause(ctx, wait)
				}))
				took[i] = time.Since(begin)
			}
		})
		slices.Sort(took)
		return took[rpcs*999/1000], float64(attempts)/rpcs - 1
	}
	policy := picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 2, BaseBackoff: time.Millisecond, MaxBackoff: time.Millisecond}
	never, fixed := policy, policy
	never.PerTryTimeout, fixed.PerTryTimeout = time.Hour, 20*time.Millisecond
	before, none := run(&never)
	if none != 0 {
		t.Fatalf("%.1f %% more attempts without hedging", 100*none)
	}
	p999, extra := run(&fixed)
	t.Logf("p999 %v instead of %v, for %.2f %% more attempts", p999, before, 100*extra)
	if p999 > before/5 || extra > .05 || extra < .005 {
		t.Errorf("p999 is %v, without hedging %v, for %.2f %% more attempts; want a fifth at most, for 5 %%", p999, before, 100*extra)
	}
}

// TestHedgedRequestIsFree: once an RPC has returned, no attempt reads the application's
// request, which may change it.
func TestHedgedRequestIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := &picker.RetryPolicy{MaxAttempts: 2, PerTryTimeout: 10 * time.Millisecond}
		var attempts atomic.Int32
		returned, read := make(chan struct{}), make(chan string)
		req := wrapperspb.String("request")
		ctx := context.WithValue(t.Context(), callKey{}, settledCall(nil))
		err := hedge(ctx, policy, req, new(emptypb.Empty), nil, func(_ context.Context, req, _ proto.Message, _ []grpc.CallOption) error {
			if attempts.Add(1) == 1 {
				time.Sleep(20 * time.Millisecond)
				return nil
			}
			<-returned // it was about to encode the request
			read <- req.(*wrapperspb.StringValue).GetValue()
			return status.Error(codes.Canceled, "x")
		})
		req.Value = "another"
		close(returned)
		if got := <-read; got != "request" || err != nil {
			t.Errorf("the RPC ends with %v, and its hedge encodes %q then, want that of the RPC", err, got)
		}
	})
}
