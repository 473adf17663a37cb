// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/picker"
)

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
			var breaker picker.Breaker
			var active, attempts, peak atomic.Int64
			l := NewChannel(link.Options{}, ChannelOptions{})
			defer l.Close()
			l.Bind(new(grpc.ClientConn), 5)
			table := &Table{Channel: l, Config: &picker.Config{Clusters: []*picker.Cluster{{Name: "c"}}}}
			if tt.limit != nil {
				table.Budgets = []*Budget{{Limit: tt.limit, InFlight: &breaker, Active: &active}}
			}
			l.Publish(func() *Table { return table })
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
		inFlight, retries int64 // retries among those in flight
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
