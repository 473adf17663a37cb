// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// TestHedged: attempts hang for all policies alike; a second one saves the RPC, and is
// counted.
func TestHedged(t *testing.T) {
	f := small(func(f *Fleet) {
		f.Load, f.Stalls, f.StallFor, f.Timeout, f.Repeats = .3, .05, time.Second, 2*time.Second, true
	})
	plain, hedged := played(t, f, row(t, "ours round_robin")), played(t, f, row(t, "ours round_robin, hedged"))
	if plain.P99 < 1000 || plain.Attempts != 1 {
		t.Errorf("one attempt of twenty hangs: p99 is %v ms, %v attempts", plain.P99, plain.Attempts)
	}
	if hedged.P99 > 500 || hedged.Attempts < 1.02 || hedged.Attempts > 1.2 {
		t.Errorf("hedged: p99 is %v ms, %v attempts", hedged.P99, hedged.Attempts)
	}
	hung := 0
	for i := range 10000 {
		if f.stalls(1, uint32(i/2), int32(i%2)) {
			hung++
		}
	}
	if hung < 390 || hung > 610 { // 500 give or take five deviations
		t.Errorf("%d of 10,000 attempts hang, want one of twenty", hung)
	}
}

// TestOutage: attempts are counted while all servers fail; they are many, and few with a
// budget.
func TestOutage(t *testing.T) {
	f := small(func(f *Fleet) {
		f.Clients, f.FailAfter, f.Repeats = 1, 200*ms, true
		f.BadFrom, f.BadTo = 4*time.Second, 5*time.Second
		f.Script = func(f *Fleet, _ *rand.Rand) (list []Event) {
			for i := range f.Servers {
				list = append(list, failAt(4*time.Second, "", i, true), failAt(5*time.Second, "", i, false))
			}
			return list
		}
	})
	for name, want := range map[string][2]float64{"stock " + retries: {3, 5}, "ours " + retries: {3, 5}, "ours " + budgeted: {1.02, 1.4}} {
		if r := played(t, f, row(t, name)); r.Attempts < want[0] || r.Attempts > want[1] {
			t.Errorf("%s: %v attempts, want %v", name, r.Attempts, want)
		}
	}
}

// TestSurge checks that servers which work on abandoned RPCs deliver little of their capacity,
// and take long to recover, and that a limit of the RPCs in flight prevents that.
func TestSurge(t *testing.T) {
	f := small(func(f *Fleet) {
		f.Load, f.Stubborn, f.Timeout, f.Again, f.Repeats = 1, true, 500*ms, 1, true
		f.Run, f.BadFrom, f.BadTo = 11*time.Second, 4*time.Second, 8*time.Second
		f.Shape = func(at time.Duration) float64 {
			if at >= f.BadFrom && at < f.BadTo {
				return 2
			}
			return .3
		}
	})
	r := played(t, f, row(t, "ours round_robin"))
	if r.Delivered > .4 || r.Recovery != -1 && r.Recovery < 3 || r.Attempts < 1.3 { // .23 ± .01 is delivered, with 1.89 ± .01
		t.Errorf("delivered %v of the capacity with %v attempts, recovered after %v s", r.Delivered, r.Attempts, r.Recovery)
	}
	r = played(t, f, row(t, "ours "+limited))
	// One RPC in a hundred is not many here, so Recovery is by chance. Of the RPCs that are
	// due in the end .005 ± .003 fail, and .44 without a limit.
	rpcs, failed := 0, 0
	for _, p := range r.Points[len(r.Points)-2:] {
		rpcs, failed = rpcs+p.RPCs, failed+p.Failed
	}
	if r.Delivered < .5 || failed*5 > rpcs { // .83 ± .02 is delivered
		t.Errorf("%s: delivered %v of the capacity; of %d RPCs %d fail a second later", limited, r.Delivered, rpcs, failed)
	}
}

// TestStreams checks that the latency of a stream is that of its first message, that it stays
// open, and that the end of the run ends it.
func TestStreams(t *testing.T) {
	f := small(func(f *Fleet) {
		f.Methods = append(f.Methods, Method{Share: .5, Mean: 20 * ms, Open: 2 * time.Second})
		f.Methods[0].Share = .5
	})
	for _, name := range []string{"anchor oracle", "ours least_latency"} {
		if r := played(t, f, row(t, name)); r.Goodput != 1 || r.P99 > 900 {
			t.Errorf("%s: goodput is %v, p99 %v ms", name, r.Goodput, r.P99)
		}
	}
	var longest atomic.Int64
	p := row(t, "ours round_robin")
	p.Server = func(*Server) ([]grpc.ServerOption, func(grpc.ServiceRegistrar)) {
		timed := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			begin := time.Now()
			err := handler(srv, stream)
			for took := int64(time.Since(begin)); ; {
				if was := longest.Load(); took <= was || longest.CompareAndSwap(was, took) {
					return err
				}
			}
		}
		return []grpc.ServerOption{grpc.StreamInterceptor(timed)}, func(grpc.ServiceRegistrar) {}
	}
	if played(t, f, p); longest.Load() < int64(2*time.Second) || longest.Load() > int64(3*time.Second) {
		t.Errorf("streams stay open for %v, want 2 s and the time in the queue", time.Duration(longest.Load()))
	}
	f.Timeout = 0
	if f.check() == nil {
		t.Error("streams without a timeout")
	}
}

// TestRecovery: by hand.
func TestRecovery(t *testing.T) {
	f := &Fleet{Warm: time.Second, Run: 6 * time.Second, BadFrom: 2 * time.Second, BadTo: 4 * time.Second, Clients: 1, Servers: 2, Workers: 1, Methods: []Method{{Share: 1, Mean: 10 * ms}}}
	work := make([]arrival, 700)
	calls := make([]call, len(work))
	for i := range work {
		work[i].at = time.Duration(i) * 10 * ms
		calls[i].attempts.Store(int32(1 + i%2))
		calls[i].failed = i >= 300 && i < 520
	}
	c := &simulation{time: f.end()}
	r := score(f, 1, work, calls, []*Server{newServer(c, 0, 1, 0, 1), newServer(c, 1, 1, 0, 1)})
	// 100 of the 200 RPCs that were due, where 400 could have been done.
	if r.Attempts != 1.5 || r.Delivered != .25 || r.Recovery != 2 {
		t.Errorf("%v attempts, %v delivered, recovery %v, want 1.5, 0.25 and 2", r.Attempts, r.Delivered, r.Recovery)
	}
	calls[690].failed, calls[691].failed = true, true
	if r := score(f, 1, work, calls, []*Server{newServer(c, 0, 1, 0, 1)}); r.Recovery != -1 {
		t.Errorf("recovery %v without a recovery, want -1", r.Recovery)
	}
}
