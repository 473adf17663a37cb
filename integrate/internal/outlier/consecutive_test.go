// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package outlier

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/picker"
)

// envoyStatus is the table of Envoy's documentation of gRPC statuses
// (source/common/grpc/status.cc, grpcToHttpStatus).
var envoyStatus = map[codes.Code]int{
	codes.OK: 200, codes.Canceled: 499, codes.Unknown: 500, codes.InvalidArgument: 400, codes.DeadlineExceeded: 504,
	codes.NotFound: 404, codes.AlreadyExists: 409, codes.PermissionDenied: 403, codes.ResourceExhausted: 429,
	codes.FailedPrecondition: 400, codes.Aborted: 409, codes.OutOfRange: 400, codes.Unimplemented: 501, codes.Internal: 500,
	codes.Unavailable: 503, codes.DataLoss: 500, codes.Unauthenticated: 401, codes.Code(99): 500,
}

// slowRuns is the oracle: each detector examines the whole history.
type slowRuns struct {
	cfg     *picker.OutlierDetection
	history [NumDetectors][]bool // failures since the latest ejection or success, by detector
}

func (s *slowRuns) count(code codes.Code, answered bool) (found Detectors) {
	status := envoyStatus[code]
	if !answered && status != 503 && status != 504 {
		return 0
	}
	thresholds := map[Detector]*picker.Consecutive{
		Consecutive5xx: s.cfg.Consecutive5xx, ConsecutiveGatewayFailure: s.cfg.ConsecutiveGateway,
		ConsecutiveLocalOriginFailure: s.cfg.ConsecutiveLocalOrigin,
	}
	for d, c := range thresholds {
		local := !answered && s.cfg.SplitLocalOrigin
		var counts, failed bool
		switch d {
		case Consecutive5xx:
			counts, failed = !local, status >= 500
		case ConsecutiveGatewayFailure:
			counts, failed = !local, status >= 502 && status <= 504
		case ConsecutiveLocalOriginFailure:
			counts, failed = local || answered, local
		}
		if !counts || c == nil {
			continue
		}
		if !failed {
			s.history[d] = nil
		} else if s.history[d] = append(s.history[d], true); len(s.history[d]) == int(c.Failures) {
			s.history[d] = nil
			found |= 1 << d
		}
	}
	return found
}

func TestCountRun(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var statuses []codes.Code
	for code := range envoyStatus {
		statuses = append(statuses, code)
	}
	var times [NumDetectors]int
	for range 300 {
		detector := func() *picker.Consecutive {
			if r.IntN(4) == 0 {
				return nil
			}
			return &picker.Consecutive{Failures: 1 + r.Uint32N(4), Enforcement: 100}
		}
		cfg := &picker.OutlierDetection{Consecutive5xx: detector(), ConsecutiveGateway: detector(), SplitLocalOrigin: r.IntN(2) == 0}
		if cfg.SplitLocalOrigin {
			cfg.ConsecutiveLocalOrigin = detector()
		}
		h, oracle := new(Host), &slowRuns{cfg: cfg}
		failing := r.IntN(100)
		for i := range 200 {
			code, answered := codes.OK, true
			if r.IntN(100) < failing {
				code, answered = statuses[r.IntN(len(statuses))], r.IntN(2) == 0
			}
			if code == codes.OK {
				answered = true
			}
			got, want := h.CountRun(cfg, code, answered), oracle.count(code, answered)
			if got != want {
				t.Fatalf("RPC %d: CountRun(%v, answered %t) = %b, want %b with %+v", i, code, answered, got, want, cfg)
			}
			for d := range NumDetectors {
				times[d] += int(got >> d & 1)
			}
		}
	}
	for d := Consecutive5xx; d < NumDetectors; d++ {
		if times[d] < 100 {
			t.Errorf("%v found %d outliers only", d, times[d])
		}
	}
}

// TestCountRunConcurrent checks that each failure counts once if several goroutines report failures.
func TestCountRunConcurrent(t *testing.T) {
	cfg := &picker.OutlierDetection{Consecutive5xx: &picker.Consecutive{Failures: 7, Enforcement: 100}}
	h := new(Host)
	var found atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 700 {
				if h.CountRun(cfg, codes.Internal, true) != 0 {
					found.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if found.Load() != 800 {
		t.Errorf("5600 failures completed %d runs of 7, want 800", found.Load())
	}
}

func TestEject(t *testing.T) {
	cfg := &picker.OutlierDetection{
		MaxEjectionPercent: 50, BaseEjectionTime: 30e9, MaxEjectionTime: 300e9,
		Consecutive5xx:     &picker.Consecutive{Failures: 5, Enforcement: 100},
		ConsecutiveGateway: &picker.Consecutive{Failures: 3, Enforcement: 10},
	}
	draw := func(n uint32) uint32 { return 50 }
	both := Detectors(1<<Consecutive5xx | 1<<ConsecutiveGatewayFailure)
	h := new(Host)
	found := Eject(cfg, h, both, 0, 4, 100, draw)
	if !h.Ejected() || h.Cause() != (Cause{Consecutive5xx, 5}) || found[Consecutive5xx].Ejected != 1 || found[ConsecutiveGatewayFailure].Spared != 1 {
		t.Errorf("Eject: %+v, cause %+v, findings %+v", h.Ejected(), h.Cause(), found)
	}
	if until := h.Until(cfg); until != 100+30e9 {
		t.Errorf("ejected until %d, want for the base time", until)
	}
	if found := Eject(cfg, h, both, 1, 4, 200, draw); found != (Findings{}) {
		t.Errorf("an ejected host has findings %+v, want none", found)
	}
	other := new(Host)
	if found := Eject(cfg, other, both, 2, 4, 200, draw); other.Ejected() || found[Consecutive5xx].Overflow != 1 {
		t.Errorf("with 2 of 4 hosts ejected and a max_ejection_percent of 50, another is ejected: %v, findings %+v, want an overflow", other.Ejected(), found)
	}
	Sweep(cfg, []*Host{h, other}, 100+30e9+1, draw)
	if h.Ejected() {
		t.Error("the sweep after the ejection time did not end the ejection")
	}
}

// TestReturnResetsRuns checks that a host that returns from an ejection has no consecutive
// failures: neither failures of a detector that did not eject it, nor failures of RPCs that were in
// flight when it was ejected.
func TestReturnResetsRuns(t *testing.T) {
	always := func(uint32) uint32 { return 0 }
	for name, test := range map[string]struct {
		gateway                 *picker.Consecutive
		before, late, remaining int
	}{
		"another detector": {gateway: &picker.Consecutive{Failures: 3, Enforcement: 100}, before: 3, remaining: 2},
		"RPCs in flight":   {before: 5, late: 4, remaining: 4},
	} {
		cfg := &picker.OutlierDetection{
			MaxEjectionPercent: 100, BaseEjectionTime: 30e9, MaxEjectionTime: 300e9,
			Consecutive5xx: &picker.Consecutive{Failures: 5, Enforcement: 100}, ConsecutiveGateway: test.gateway,
		}
		h := new(Host)
		fail := func(n int) (found Detectors) {
			for range n {
				found |= h.CountRun(cfg, codes.Unavailable, true)
			}
			return found
		}
		Eject(cfg, h, fail(test.before), 0, 1, 100, always)
		if !h.Ejected() {
			t.Fatalf("%s: not ejected after %d failures", name, test.before)
		}
		fail(test.late)
		Sweep(cfg, []*Host{h}, 100+30e9+1, always)
		if found := fail(test.remaining); h.Ejected() || found != 0 {
			t.Errorf("%s: %d failures after the return exceed thresholds %b", name, test.remaining, found)
		}
	}
}

func BenchmarkCountRun(b *testing.B) {
	cfg := &picker.OutlierDetection{Consecutive5xx: &picker.Consecutive{Failures: 5, Enforcement: 100}}
	for name, code := range map[string]codes.Code{"success": codes.OK, "failure": codes.Internal} {
		b.Run("result="+name, func(b *testing.B) {
			h := new(Host)
			b.ReportAllocs()
			for b.Loop() {
				h.CountRun(cfg, code, true)
			}
		})
	}
}
