// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/picker"
)

// retryUnary retries an RPC whose attempts are calls of attempt.
func retryUnary(ctx context.Context, policy *picker.RetryPolicy, req any, opts []grpc.CallOption, attempt func(context.Context, []grpc.CallOption) error) error {
	invoker := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
		return attempt(ctx, opts)
	}
	return unaryRPC{call: planned(ctx, plan{retry: policy}), invoker: invoker, ctx: ctx, req: req, opts: opts}.retry()
}

// TestRetryUnary is A44 and A6: attempts up to the limit, for the codes of the
// policy only, no more after response headers, and as the server pushes back.
func TestRetryUnary(t *testing.T) {
	policy := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 4, BaseBackoff: time.Second, MaxBackoff: 2 * time.Second}
	unavailable := status.Error(codes.Unavailable, "x")
	tests := []struct {
		name     string
		errs     []error
		header   bool
		pushback string
		attempts int
		atLeast  time.Duration
		code     codes.Code
	}{
		{name: "success", errs: []error{nil}, attempts: 1},
		{name: "success in the end", errs: []error{unavailable, unavailable, nil}, attempts: 3},
		{name: "limit", errs: []error{unavailable, unavailable, unavailable, unavailable, nil}, attempts: 4, code: codes.Unavailable},
		{name: "another code", errs: []error{status.Error(codes.Internal, "x"), nil}, attempts: 1, code: codes.Internal},
		{name: "headers", errs: []error{unavailable, nil}, header: true, attempts: 1, code: codes.Unavailable},
		{name: "pushback", errs: []error{unavailable, nil}, pushback: "5000", attempts: 2, atLeast: 5 * time.Second},
		{name: "do not retry", errs: []error{unavailable, nil}, pushback: "-1", attempts: 1, code: codes.Unavailable},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			attempts, begin := 0, time.Now()
			err := retryUnary(t.Context(), policy, new(emptypb.Empty), nil, func(_ context.Context, opts []grpc.CallOption) error {
				for _, o := range opts {
					switch o := o.(type) {
					case grpc.HeaderCallOption:
						if tt.header {
							*o.HeaderAddr = metadata.Pairs("k", "v")
						}
					case grpc.TrailerCallOption:
						if tt.pushback != "" {
							*o.TrailerAddr = metadata.Pairs(pushbackKey, tt.pushback)
						}
					}
				}
				attempts++
				return tt.errs[attempts-1]
			})
			if attempts != tt.attempts || status.Code(err) != tt.code {
				t.Errorf("%s: %d attempts and %v, want %d and %v", tt.name, attempts, err, tt.attempts, tt.code)
			}
			if took := time.Since(begin); took < tt.atLeast || took > 7*time.Second {
				t.Errorf("%s: took %v", tt.name, took)
			}
		})
	}
}

// TestPushbackResetsBackoff checks that the backoff after a pushback starts at the base again (A6).
func TestPushbackResetsBackoff(t *testing.T) {
	policy := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 4, BaseBackoff: time.Second, MaxBackoff: time.Minute}
	synctest.Test(t, func(t *testing.T) {
		var attempts []time.Time
		_ = retryUnary(t.Context(), policy, new(emptypb.Empty), nil, func(_ context.Context, opts []grpc.CallOption) error {
			attempts = append(attempts, time.Now())
			for _, o := range opts {
				if o, ok := o.(grpc.TrailerCallOption); ok && len(attempts) == 2 {
					*o.TrailerAddr = metadata.Pairs(pushbackKey, "5000")
				}
			}
			return status.Error(codes.Unavailable, "x")
		})
		if len(attempts) != 4 {
			t.Fatalf("%d attempts, want 4", len(attempts))
		}
		if wait := attempts[2].Sub(attempts[1]); wait != 5*time.Second {
			t.Errorf("attempt 3 is made %v after an attempt with a pushback of 5s", wait)
		}
		if wait := attempts[3].Sub(attempts[2]); wait < 800*time.Millisecond || wait > 1200*time.Millisecond {
			t.Errorf("attempt 4 is made %v after attempt 3, want the base backoff of 1s, or a fifth more or less", wait)
		}
	})
}

// TestRetryBackoff: the time between attempts is what the policy says, longer or
// shorter by up to a fifth, twice as much each time up to the maximum (A6, A44).
func TestRetryBackoff(t *testing.T) {
	policy := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 5, BaseBackoff: time.Second, MaxBackoff: 3 * time.Second}
	want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second}
	shorter, longer := 0, 0
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			last, attempts := time.Now(), 0
			_ = retryUnary(t.Context(), policy, new(emptypb.Empty), nil, func(context.Context, []grpc.CallOption) error {
				if attempts++; attempts > 1 {
					mean := want[attempts-2]
					wait := time.Since(last)
					if wait < mean*8/10 || wait > mean*12/10 {
						t.Errorf("%v before attempt %d, want %v or a fifth more or less", wait, attempts, mean)
					}
					if wait < mean {
						shorter++
					} else {
						longer++
					}
				}
				last = time.Now()
				return status.Error(codes.Unavailable, "x")
			})
		}
	})
	if shorter < 50 || longer < 50 {
		t.Errorf("of 200 back-offs %d are shorter than the policy's and %d longer; want half each", shorter, longer)
	}
}

// TestRetryOptions: an application's grpc.WithMaxCallAttempts and
// grpc.MaxRetryRPCBufferSize limit our retries as they do gRPC's.
func TestRetryOptions(t *testing.T) {
	policy := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 4, BaseBackoff: time.Second, MaxBackoff: time.Second}
	large := wrapperspb.Bytes(make([]byte, 256<<10))
	for _, tt := range []struct {
		name        string
		maxAttempts int
		req         any
		opts        []grpc.CallOption
		attempts    int
	}{
		{name: "gRPC's defaults", maxAttempts: 5, req: wrapperspb.String("x"), attempts: 4},
		{name: "fewer attempts", maxAttempts: 2, req: wrapperspb.String("x"), attempts: 2},
		{name: "no buffer", maxAttempts: 5, req: wrapperspb.String("x"), opts: []grpc.CallOption{grpc.MaxRetryRPCBufferSize(0)}, attempts: 1},
		{name: "no buffer, and no proto.Message", maxAttempts: 5, req: "x", opts: []grpc.CallOption{grpc.MaxRetryRPCBufferSize(0)}, attempts: 1},
		{name: "a large request", maxAttempts: 5, req: large, attempts: 1},
		{name: "a larger buffer", maxAttempts: 5, req: large, opts: []grpc.CallOption{grpc.MaxRetryRPCBufferSize(1 << 20)}, attempts: 4},
		{name: "the last option counts", maxAttempts: 5, req: large, opts: []grpc.CallOption{grpc.MaxRetryRPCBufferSize(0), grpc.MaxRetryRPCBufferSize(1 << 20)}, attempts: 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := NewChannel(link.Options{}, ChannelOptions{})
			defer l.Close()
			l.Bind(new(grpc.ClientConn), tt.maxAttempts)
			ctx := context.WithValue(t.Context(), callKey{}, settledCall(l))
			attempts := 0
			_ = retryUnary(ctx, policy, tt.req, tt.opts, func(context.Context, []grpc.CallOption) error {
				attempts++
				return status.Error(codes.Unavailable, "x")
			})
			if attempts != tt.attempts {
				t.Errorf("%s: %d attempts, want %d", tt.name, attempts, tt.attempts)
			}
		})
	}
}

// planned returns the Call in a context, or else a Call that was picked for, with a plan.
func planned(ctx context.Context, p plan) *Call {
	c := callIn(ctx)
	if c == nil {
		c = settledCall(nil)
	}
	c.plan = &p
	return c
}

// TestRetryHiddenCall: the RPC is retried, subject to its channel's throttling, although an HTTP
// filter replaces the context, so that picks do not find the Call.
func TestRetryHiddenCall(t *testing.T) {
	filter := interceptor{unary: func(_ context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return next(context.Background(), method, req, reply, cc, opts...)
	}}
	policy := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 4, BaseBackoff: 1, MaxBackoff: 1}
	ch := NewChannel(link.Options{}, ChannelOptions{})
	defer ch.Close()
	call := &Call{plan: &plan{retry: policy, filters: filterSet{listener: &listenerFilters{list: []interceptor{filter}}, active: 1}}}
	call.at.Store(ch)
	call.matched.plans = new(Plans)
	ctx := context.WithValue(t.Context(), callKey{}, call)
	attempts := 0
	err := unaryRPC{call: call, ctx: ctx, req: new(emptypb.Empty), invoker: func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		attempts++
		return status.Error(codes.Unavailable, "x")
	}}.filter(0)
	if attempts != 4 || status.Code(err) != codes.Unavailable || ch.Retries() != 3 {
		t.Errorf("%d attempts, %d counted retries, and error %v; want 4, 3, and UNAVAILABLE", attempts, ch.Retries(), err)
	}
}

// settledCall is a Call whose RPC was picked for.
func settledCall(l *Channel) *Call {
	c := new(Call)
	c.at.Store(l)
	c.committed.Store(&c.matched)
	return c
}

// limitRetries gives a channel a cluster c with a limit of retries, unless that is nil, and returns what it counts.
func limitRetries(l *Channel, limit *picker.RetryLimit) (inFlight *picker.Breaker, active *atomic.Int64) {
	inFlight, active = new(picker.Breaker), new(atomic.Int64)
	table := &Table{Channel: l, Config: &picker.Config{Clusters: []*picker.Cluster{{Name: "c"}}}}
	if limit != nil {
		table.Budgets = []*Budget{{Limit: limit, InFlight: inFlight, Active: active}}
	}
	l.Publish(func() *Table { return table })
	return inFlight, active
}

// TestRetryLongBackoff: a back-off near the limit of a time.Duration does not overflow.
func TestRetryLongBackoff(t *testing.T) {
	for range 100 {
		if got := Jitter(math.MaxInt64); got < 100*365*24*time.Hour {
			t.Fatalf("a back-off of %v became %v", time.Duration(math.MaxInt64), got)
		}
	}
}

// TestOutageBudget: in an outage of everything, the default budget lets 100 callers make at
// most 1.2 attempts for each RPC where their policy allows 5; a limit of n retries never
// lets more be under way; and in the end none is.
func TestOutageBudget(t *testing.T) {
	for _, tt := range []struct {
		name     string
		limit    *picker.RetryLimit
		atLeast  float64 // attempts for each RPC
		atMost   float64
		underway int64
	}{
		{"none", nil, 5, 5, 0},
		{"default", &picker.RetryLimit{Percent: 20, Min: 3}, 1.02, 1.2, 20},
		{"max_retries", &picker.RetryLimit{Min: 2}, 1.001, 1.05, 2}, // 1.015 ± .002
		{"no retries", &picker.RetryLimit{}, 1, 1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			const callers, rpcs = 100, 100
			var attempts, peak atomic.Int64
			l := NewChannel(link.Options{}, ChannelOptions{})
			defer l.Close()
			l.Bind(new(grpc.ClientConn), 5)
			breaker, active := limitRetries(l, tt.limit)
			policy := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 5, BaseBackoff: 25 * time.Millisecond, MaxBackoff: 250 * time.Millisecond}
			var calling sync.WaitGroup
			for range callers {
				calling.Go(func() {
					time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
					for range rpcs {
						c := settledCall(l)
						c.matched.name = "c"
						ctx := context.WithValue(t.Context(), callKey{}, c)
						_ = retryUnary(ctx, policy, new(emptypb.Empty), nil, func(context.Context, []grpc.CallOption) error {
							attempts.Add(1)
							breaker.Acquire(1 << 20)
							defer breaker.Release()
							for n := active.Load(); ; {
								if p := peak.Load(); n <= p || peak.CompareAndSwap(p, n) {
									break
								}
							}
							time.Sleep(50 * time.Millisecond)
							return status.Error(codes.Unavailable, "x")
						})
					}
				})
			}
			calling.Wait()
			ratio := float64(attempts.Load()) / (callers * rpcs)
			t.Logf("%s: %.3f attempts for each RPC, at most %d retries under way", tt.name, ratio, peak.Load())
			if ratio < tt.atLeast || ratio > tt.atMost {
				t.Errorf("%s: %.3f attempts for each RPC, want %v to %v", tt.name, ratio, tt.atLeast, tt.atMost)
			}
			if peak.Load() > tt.underway || active.Load() != 0 {
				t.Errorf("%s: up to %d retries were under way, and in the end %d; want at most %d, and 0", tt.name, peak.Load(), active.Load(), tt.underway)
			}
		})
	}
}

// TestBudgetShare: a percentage is of the attempts in flight that are no retries, so that
// retries do not make room for more of them.
func TestBudgetShare(t *testing.T) {
	for _, tt := range []struct {
		percent           float64
		least             uint32
		inFlight, retries int64 // retries among them
		want              bool
	}{
		{20, 0, 0, 0, false},
		{20, 0, 4, 0, false},
		{20, 0, 5, 0, true},
		{20, 0, 10, 1, false}, // 1.8 of 9, and 2 of 10
		{20, 0, 11, 1, true},
		{20, 0, 60, 10, false},
		{100, 0, 10, 5, false},
		{100, 0, 11, 5, true},
		{20, 3, 0, 2, true},
		{20, 3, 0, 3, false},
		{20, 3, 3, 3, false},
		{0, 3, 1000, 2, true},
		{0, 3, 1000, 3, false},
		{20, 0, 1, 3, false}, // in a back-off, a retry is not in flight
	} {
		var breaker picker.Breaker
		var active atomic.Int64
		for range tt.inFlight {
			breaker.Acquire(1 << 20)
		}
		active.Store(tt.retries)
		b := &Budget{Limit: &picker.RetryLimit{Percent: tt.percent, Min: tt.least}, InFlight: &breaker, Active: &active}
		if got := b.acquire(); got != tt.want {
			t.Errorf("%v %% and at least %d, with %d attempts in flight and %d retries: another retry: %t, want %t",
				tt.percent, tt.least, tt.inFlight, tt.retries, got, tt.want)
		} else if want := tt.retries + map[bool]int64{true: 1}[got]; active.Load() != want {
			t.Errorf("%d retries are under way, want %d", active.Load(), want)
		}
	}
}

// TestPushback: the server's own time has precedence, within a minute. Errors of gRPC about the size of messages
// have the code RESOURCE_EXHAUSTED too.
func TestPushback(t *testing.T) {
	exhausted := status.Error(codes.ResourceExhausted, "quota exceeded")
	for _, test := range []struct {
		err     error
		trailer string
		want    time.Duration
	}{
		{exhausted, "", time.Second},
		{exhausted, "0", 0},
		{exhausted, "50", 50 * time.Millisecond},
		{exhausted, "-1", time.Second},
		{status.Error(codes.Unavailable, ""), "1500", 1500 * time.Millisecond},
		{status.Error(codes.Unavailable, ""), "3600000", time.Minute},
		{status.Error(codes.Unavailable, ""), "", 0},
		{status.Error(codes.Unavailable, ""), "-1", 0},
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 4)"), "", 0},
		{status.Error(codes.ResourceExhausted, "trying to send message larger than max (9 vs. 4)"), "", 0},
		{errTryTimeout, "", 0},
	} {
		info := balancer.DoneInfo{Err: test.err}
		if test.trailer != "" {
			info.Trailer = metadata.Pairs(pushbackKey, test.trailer)
		}
		if got := Pushback(&info); got != test.want {
			t.Errorf("%v with pushback %q: %v, want %v", test.err, test.trailer, got, test.want)
		}
	}
}
