// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// admissionConfig is the filter's configuration without any field.
func admissionConfig() resource.AdmissionControl {
	return resource.AdmissionControl{Enabled: true, Window: 30 * time.Second, Threshold: .95, Aggression: 1, MaxRejection: .8, Success: 1}
}

var errFailing = status.Error(codes.Unavailable, "x")

// TestAdmissionOracle: whatever comes when, the RPCs that count are those of the steps of the
// window, and the probability is the formula's.
func TestAdmissionOracle(t *testing.T) {
	type rpc struct {
		step int64
		ok   bool
	}
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			cfg := admissionConfig()
			cfg.Window = []time.Duration{time.Second, 3 * time.Second, 30 * time.Second, 10 * time.Minute}[rng.IntN(4)]
			cfg.Aggression, cfg.MaxRejection, cfg.Threshold = 1+2*rng.Float64(), rng.Float64(), .01+.99*rng.Float64()
			a := newAdmission(admissionKey{"f", cfg})
			steps := int64(min(cfg.Window/time.Second, 60))
			step, begin := cfg.Window/time.Duration(steps), time.Now()
			var all []rpc
			failing := 0.0
			for range 400 {
				switch rng.IntN(30) {
				case 0:
					time.Sleep(time.Duration(rng.Int64N(int64(3 * cfg.Window))))
				case 1:
					failing = rng.Float64()
				default:
					time.Sleep(time.Duration(rng.Int64N(int64(step))))
				}
				now := int64(time.Since(begin) / step)
				n, ok := 0, 0
				for _, r := range all {
					if r.step > now-steps {
						if n++; r.ok {
							ok++
						}
					}
				}
				want := math.Pow(max(0, float64(n)-float64(ok)/cfg.Threshold)/float64(n+1), 1/cfg.Aggression)
				if p := a.probability(); math.Abs(p-min(want, cfg.MaxRejection)) > 1e-12 {
					t.Fatalf("seed %d: after %v %d of %d succeeded: the probability is %v, want %v", seed, time.Since(begin), ok, n, p, min(want, cfg.MaxRejection))
				}
				if rpcs, successes := a.counts(); int(rpcs) != n || int(successes) != ok {
					t.Fatalf("seed %d: %d of %d RPCs succeeded, want %d of %d", seed, successes, rpcs, ok, n)
				}
				r := rpc{now, rng.Float64() >= failing}
				all = append(all, r)
				if r.ok {
					a.record(nil)
				} else {
					a.record(errFailing)
				}
			}
		})
	}
}

// TestAdmission: what is refused when everything fails, and when the RPCs are back; RPCs that
// are refused do not count.
func TestAdmission(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*resource.AdmissionControl)
		rate   int // RPCs in a second
		fails  bool
		want   float64 // share of RPCs refused, after a window
	}{
		{"healthy", nil, 100, false, 0},
		{"down", nil, 100, true, .8},
		{"a lower limit", func(c *resource.AdmissionControl) { c.MaxRejection = .3 }, 100, true, .3},
		{"few RPCs", func(c *resource.AdmissionControl) { c.MinRPS = 60 }, 50, true, 0},
		{"enough RPCs", func(c *resource.AdmissionControl) { c.MinRPS = 8 }, 50, true, .8}, // of which a fifth counts
		{"UNAVAILABLE is a success", func(c *resource.AdmissionControl) { c.Success |= 1 << codes.Unavailable }, 100, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := admissionConfig()
			if tt.change != nil {
				tt.change(&cfg)
			}
			a := newAdmission(admissionKey{"f", cfg})
			calls, refused := 0, 0
			run := func(fails bool, n int) {
				for range n {
					time.Sleep(time.Second / time.Duration(tt.rate))
					err := admissionInterceptor(a).unary(t.Context(), "/s/m", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
						calls++
						if fails {
							return errFailing
						}
						return nil
					})
					if err != nil && err != errFailing {
						refused++
						if status.Code(err) != codes.Unavailable {
							t.Fatal(err)
						}
					}
				}
			}
			run(tt.fails, 30*tt.rate)
			calls, refused = 0, 0
			run(tt.fails, 100*tt.rate)
			n := 100 * tt.rate
			if within := 7 * math.Sqrt(float64(n)/4); math.Abs(float64(refused)-tt.want*float64(n)) > within {
				t.Errorf("%s: %d of %d RPCs are refused, want %v", tt.name, refused, n, tt.want)
			}
			if calls+refused != n {
				t.Errorf("%s: %d RPCs were made and %d refused, of %d", tt.name, calls, refused, n)
			}
			run(false, 31*tt.rate)
			refused = 0
			run(false, 30*tt.rate)
			if refused > 0 {
				t.Errorf("%s: %d RPCs are refused a window after the last failure", tt.name, refused)
			}
		})
	}
}

// TestAdmissionRate: RPCs in a second are those since the first that counts, so that a channel
// that was quiet need not fail for a window before any RPC is refused.
func TestAdmissionRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := admissionConfig()
		cfg.MinRPS = 50
		a := newAdmission(admissionKey{"f", cfg})
		for range 2 {
			time.Sleep(time.Hour)
			for range 100 {
				time.Sleep(10 * time.Millisecond)
				a.record(errFailing)
			}
			if a.probability() == 0 {
				t.Error("100 failures in a second after a quiet hour have no RPC refused")
			}
		}
		time.Sleep(2 * time.Second)
		if p := a.probability(); p != 0 {
			t.Errorf("100 failures in 3 s have %v of the RPCs refused, though 50 in a second are too few", p)
		}
	})
}

// TestAdmissionStream: a stream counts when it ends, and once.
func TestAdmissionStream(t *testing.T) {
	cfg := admissionConfig()
	cfg.MaxRejection = 0
	a := newAdmission(admissionKey{"f", cfg})
	var onFinish []func(error)
	open := func(err error) {
		_, got := admissionInterceptor(a).stream(t.Context(), nil, nil, "/s/m", func(_ context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			onFinish = append(onFinish, opts[len(opts)-1].(grpc.OnFinishCallOption).OnFinish)
			return nil, err
		})
		if got != err {
			t.Fatalf("the stream is opened with %v, want %v", got, err)
		}
	}
	expect := func(rpcs, successes uint32) {
		t.Helper()
		if n, s := a.counts(); n != rpcs || s != successes {
			t.Fatalf("%d of %d RPCs succeeded, want %d of %d", s, n, successes, rpcs)
		}
	}
	open(nil)
	open(nil)
	expect(0, 0)
	onFinish[0](nil)
	expect(1, 1)
	onFinish[0](nil)
	onFinish[1](errFailing)
	expect(2, 1)
	open(errFailing)
	onFinish[2](errFailing)
	expect(3, 1)
}

// TestAdmissionSums: whoever counts while slots are emptied, the sum is that of the slots.
func TestAdmissionSums(t *testing.T) {
	cfg := admissionConfig()
	cfg.Window = 3 * time.Second
	a := newAdmission(admissionKey{"f", cfg})
	a.step = time.Microsecond // as fast as it gets
	var calling sync.WaitGroup
	begin := make(chan struct{})
	for i := range 4 {
		calling.Go(func() {
			<-begin
			for range 100_000 {
				if i%2 == 0 {
					a.record(nil)
				} else {
					a.record(errFailing)
				}
				if n, s := a.counts(); s > n {
					t.Errorf("%d of %d RPCs succeeded", s, n)
				}
			}
		})
	}
	close(begin)
	calling.Wait()
	sum := uint64(0)
	for i := range a.slots {
		sum += a.slots[i].Load()
	}
	if sum != a.sum.Load() {
		t.Errorf("the slots have %x, and the sum is %x", sum, a.sum.Load())
	}
}

// TestAdmissionSurvives: a filter goes on counting through updates that leave its
// configuration as it is, has one state for each configuration that routes give it, and
// none where it is off.
func TestAdmissionSurvives(t *testing.T) {
	base, other, off := admissionConfig(), admissionConfig(), admissionConfig()
	other.Threshold, off.Enabled = .5, false
	config := func(base resource.AdmissionControl) *picker.Config {
		override := func(cfg resource.AdmissionControl) picker.Route {
			return picker.Route{Overrides: map[string]any{"f": resource.FilterOverride{Config: &cfg}}}
		}
		return &picker.Config{
			Routes:  []picker.Route{{}, {}, override(other), override(other), override(off), {Overrides: map[string]any{"f": resource.FilterOverride{Disabled: true}}}},
			Filters: []picker.Filter{{Name: "f", Config: &base}},
		}
	}
	of := func(p *Plans, cfg resource.AdmissionControl) *admission { return p.admissions[admissionKey{"f", cfg}] }
	_, first := Compile(config(base), CompileOptions{})
	if len(first.admissions) != 2 || of(first, base) == nil || of(first, other) == nil {
		t.Fatalf("admissions are %v, want one for each of two configurations", first.admissions)
	}
	for i, want := range []int{1, 1, 1, 1, 0, 0} {
		if got := 0; first.routes[i] != nil {
			if got = len(first.routes[i].all.filters); got != want {
				t.Errorf("route %d has %d filters, want %d", i, got, want)
			}
		}
	}
	_, second := Compile(config(base), CompileOptions{Before: first})
	if of(second, base) != of(first, base) || of(second, other) != of(first, other) {
		t.Error("an update that changes nothing begins anew")
	}
	changed := base
	changed.Aggression = 2
	_, third := Compile(config(changed), CompileOptions{Before: second})
	if of(third, changed) == nil || of(third, base) != nil || of(third, other) != of(first, other) {
		t.Errorf("after a change, admissions are %v", third.admissions)
	}
}

// TestAdmissionAllocates: letting an RPC through, refusing it and counting it allocates
// nothing.
func TestAdmissionAllocates(t *testing.T) {
	a := newAdmission(admissionKey{"f", admissionConfig()})
	refused := 0
	if n := testing.AllocsPerRun(1000, func() {
		if a.admit() != nil {
			refused++
		}
		a.record(errFailing)
	}); n > 0 {
		t.Errorf("%v allocations for each RPC", n)
	}
	if refused == 0 {
		t.Error("no RPC was refused")
	}
}
