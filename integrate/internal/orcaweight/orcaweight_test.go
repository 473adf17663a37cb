// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package orcaweight

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"

	"github.com/xdslb/xdslb/picker"
)

var nan, inf = math.NaN(), math.Inf(1)

// TestWeight is A58's formula with A114's choice of the utilization, and T-WRR-4's
// reports that say nothing.
func TestWeight(t *testing.T) {
	type report = orcav3.OrcaLoadReport
	type values = map[string]float64
	tests := []struct {
		name    string
		penalty float64
		metrics []string
		report  *report
		want    float64
	}{
		{"processor", 0, nil, &report{RpsFractional: 100, CpuUtilization: 0.5}, 200},
		{"application first", 0, nil, &report{RpsFractional: 100, CpuUtilization: 0.5, ApplicationUtilization: 0.25}, 400},
		{"overloaded", 0, nil, &report{RpsFractional: 100, ApplicationUtilization: 4}, 25},
		{"errors", 1, nil, &report{RpsFractional: 100, CpuUtilization: 0.5, Eps: 50}, 100},
		{"errors at half the penalty", 0.5, nil, &report{RpsFractional: 100, CpuUtilization: 0.5, Eps: 50}, 100 / 0.75},
		{"errors without a penalty", 0, nil, &report{RpsFractional: 100, CpuUtilization: 0.5, Eps: 50}, 200},

		{"nothing", 1, nil, &report{}, 0},
		{"no queries", 1, nil, &report{CpuUtilization: 0.5}, 0},
		{"no utilization", 1, nil, &report{RpsFractional: 100}, 0},
		{"no utilization but errors", 1, nil, &report{RpsFractional: 100, Eps: 50}, 0},
		{"negative queries", 1, nil, &report{RpsFractional: -100, CpuUtilization: 0.5}, 0},
		{"negative utilization", 1, nil, &report{RpsFractional: 100, CpuUtilization: -0.5}, 0},
		{"NaN queries", 1, nil, &report{RpsFractional: nan, CpuUtilization: 0.5}, 0},
		{"infinite queries", 1, nil, &report{RpsFractional: inf, CpuUtilization: 0.5}, 0},
		{"NaN utilization", 1, nil, &report{RpsFractional: 100, CpuUtilization: nan}, 0},
		{"NaN of the application", 1, nil, &report{RpsFractional: 100, CpuUtilization: 0.5, ApplicationUtilization: nan}, 200},
		{"NaN errors", 1, nil, &report{RpsFractional: 100, CpuUtilization: 0.5, Eps: nan}, 200},
		{"negative errors", 1, nil, &report{RpsFractional: 100, CpuUtilization: 0.5, Eps: -40}, 200},
		{"errors beyond all numbers", 1, nil, &report{RpsFractional: 1e-300, CpuUtilization: 0.5, Eps: 1e300}, 0},
		{"a weight beyond all numbers", 0, nil, &report{RpsFractional: 1e300, CpuUtilization: 1e-300}, 0},

		{"A114: memory", 0, []string{"mem_utilization"}, &report{RpsFractional: 100, CpuUtilization: 0.5, MemUtilization: 0.2}, 500},
		{"A114: application first", 0, []string{"mem_utilization"}, &report{RpsFractional: 100, ApplicationUtilization: 0.5, MemUtilization: 0.2}, 200},
		{"A114: the greatest", 0, []string{"named_metrics.a", "cpu_utilization", "named_metrics.b"}, &report{RpsFractional: 100, CpuUtilization: 0.1, NamedMetrics: values{"a": 0.2, "b": 0.4, "c": 9}}, 250},
		{"A114: the first dot", 0, []string{"named_metrics.a.b"}, &report{RpsFractional: 100, NamedMetrics: values{"a.b": 0.2}}, 500},
		{"A114: utilization", 0, []string{"utilization.disk"}, &report{RpsFractional: 100, Utilization: values{"disk": 0.2}, NamedMetrics: values{"disk": 0.4}}, 500},
		{"A114: fallback", 0, []string{"named_metrics.absent", "unknown", "unknown.x", "cpu_utilization.x"}, &report{RpsFractional: 100, CpuUtilization: 0.5}, 200},
		{"A114: unusable values", 0, []string{"named_metrics.a", "named_metrics.b", "named_metrics.c"}, &report{RpsFractional: 100, CpuUtilization: 0.5, NamedMetrics: values{"a": nan, "b": -1, "c": inf}}, 200},
		{"A114: some unusable values", 0, []string{"named_metrics.a", "named_metrics.d", "named_metrics.c"}, &report{RpsFractional: 100, CpuUtilization: 0.5, NamedMetrics: values{"a": nan, "d": 0.2, "c": inf}}, 500},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := NewRule(&picker.ClientWRR{ErrorPenalty: tt.penalty, UtilizationFrom: tt.metrics}).Weight(tt.report, 0)
			if math.Abs(got-tt.want) > 1e-9*tt.want {
				t.Errorf("weight %v, want %v", got, tt.want)
			}
		})
	}
}

// TestFailuresSeen checks that failures seen by the client count as errors if errors are not
// reported, and are not added to reported ones.
func TestFailuresSeen(t *testing.T) {
	rule := NewRule(&picker.ClientWRR{ErrorPenalty: 0.5})
	for _, tt := range []struct{ eps, failing, want float64 }{
		{0, 0, 200}, {0, 1, 100}, {0, 0.5, 100 / 0.75}, {50, 1, 100 / 0.75}, {nan, 1, 100}, {-1, 1, 100},
	} {
		report := &orcav3.OrcaLoadReport{RpsFractional: 100, CpuUtilization: 0.5, Eps: tt.eps}
		if got := rule.Weight(report, tt.failing); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%v errors reported, %v of the RPCs failed: weight %v, want %v", tt.eps, tt.failing, got, tt.want)
		}
	}
}

// TestFailures: the part of RPCs that failed is followed within a few hundred RPCs, and
// forgotten.
func TestFailures(t *testing.T) {
	var f Failures
	for _, part := range []float64{0, 1, 0.25, 0.01, 0} {
		rng := rand.New(rand.NewPCG(1, 2))
		sum, n := 0., 0
		for i := range 20_000 {
			f.Count(rng.Float64() < part)
			if got := f.Part(); got < 0 || got > 1 {
				t.Fatalf("%v of the RPCs failed", got)
			}
			if i >= 1000 {
				sum, n = sum+f.Part(), n+1
			}
		}
		if got := sum / float64(n); math.Abs(got-part) > 0.01 {
			t.Errorf("%v of the RPCs failed, want %v", got, part)
		}
	}
	if f.Part() != 0 {
		t.Errorf("%v of the RPCs failed long after the last that did", f.Part())
	}
	if n := testing.AllocsPerRun(100, func() { f.Count(true) }); n != 0 {
		t.Errorf("Count makes %v allocations", n)
	}
}

// TestWeightIsUsable checks that for all reports the weight is 0 or a positive, finite number
// (T-WRR-4).
func TestWeightIsUsable(t *testing.T) {
	values := []float64{0, 1, 0.5, -1, nan, inf, -inf, math.MaxFloat64, math.SmallestNonzeroFloat64, 1e-300, 1e300}
	r := NewRule(&picker.ClientWRR{ErrorPenalty: 1, UtilizationFrom: []string{"mem_utilization"}})
	for _, qps := range values {
		for _, eps := range values {
			for _, app := range values {
				for _, mem := range values {
					for _, cpu := range values {
						w := r.Weight(&orcav3.OrcaLoadReport{RpsFractional: qps, Eps: eps, ApplicationUtilization: app, MemUtilization: mem, CpuUtilization: cpu}, 0)
						if !(w >= 0 && w <= math.MaxFloat64) {
							t.Fatalf("weight %v of qps %v, eps %v, application %v, memory %v, processor %v", w, qps, eps, app, mem, cpu)
						}
					}
				}
			}
		}
	}
}

const second = int64(time.Second)

// TestPeriods walks through A58's blackout and expiration (T-WRR-3).
func TestPeriods(t *testing.T) {
	cfg := &picker.ClientWRR{Blackout: 10 * time.Second, Expiration: 60 * time.Second}
	var w Weight
	want := func(at int64, weight float64) {
		t.Helper()
		if got := w.At(cfg, at*second); got != weight {
			t.Errorf("after %d s the weight is %v, want %v", at, got, weight)
		}
	}
	want(1, 0)
	w.Report(cfg, 5, 1*second)
	want(1, 0)
	w.Report(cfg, 7, 9*second)
	want(10, 0) // since 1 s: not yet
	want(11, 7)
	w.Report(cfg, 0, 20*second) // ignored
	want(68, 7)
	want(69, 0)                 // 60 s after the last one
	w.Report(cfg, 8, 80*second) // after a gap
	want(89, 0)
	want(90, 8)
	w.Connect() // another connection
	want(91, 0)
	w.Report(cfg, 9, 92*second)
	want(101, 0)
	want(102, 9)

	cfg.Blackout = 0 // is off
	want(102, 9)
	w.Connect()
	want(103, 9)
	cfg.Expiration = 0 // has always passed
	want(103, 0)
}

// oracle is A58's pseudo-code.
type oracle struct {
	weight                     float64
	lastUpdated, nonEmptySince int64
}

const infinitely = math.MaxInt64

func (o *oracle) updateWeight(qps, eps, utilization float64, penalty float64, now int64) {
	if utilization > 0 && qps > 0 {
		utilization += eps / qps * penalty
	}
	weight := 0.
	if utilization > 0 {
		weight = qps / utilization
	}
	if weight == 0 {
		return
	}
	if o.nonEmptySince == infinitely {
		o.nonEmptySince = now
	}
	o.lastUpdated, o.weight = now, weight
}

func (o *oracle) getWeight(cfg *picker.ClientWRR, now int64) float64 {
	if o.lastUpdated == 0 || now-o.lastUpdated >= int64(cfg.Expiration) {
		o.nonEmptySince = infinitely
		return 0
	}
	if cfg.Blackout > 0 && (o.nonEmptySince == infinitely || now-o.nonEmptySince < int64(cfg.Blackout)) {
		return 0
	}
	return o.weight
}

// TestAgainstOracle compares with A58's pseudo-code over random reports, silences
// and reconnections, with look-ups each second, before and after a report.
func TestAgainstOracle(t *testing.T) {
	runs := 500
	if testing.Short() {
		runs = 50
	}
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 58))
		cfg := &picker.ClientWRR{
			Blackout:     time.Duration(rng.IntN(15)) * time.Second,
			Expiration:   time.Duration(1+rng.IntN(30)) * time.Second,
			ErrorPenalty: float64(rng.IntN(3)),
		}
		rule := NewRule(cfg)
		var w Weight
		o := oracle{nonEmptySince: infinitely}
		rate := 1 + rng.IntN(20)
		for s := int64(1); s < 400; s++ {
			now := s * second
			o.getWeight(cfg, now) // that time has run out is noticed by looking
			if rng.IntN(60) == 0 {
				w.Connect()
				o.nonEmptySince = infinitely
			}
			if rng.IntN(40) == 0 {
				rate = 1 + rng.IntN(40)
			}
			if rng.IntN(rate) == 0 {
				qps, eps, u := float64(rng.IntN(4)), float64(rng.IntN(3)), float64(rng.IntN(4))/4
				w.Report(cfg, rule.Weight(&orcav3.OrcaLoadReport{RpsFractional: qps, Eps: eps, CpuUtilization: u}, 0), now)
				o.updateWeight(qps, eps, u, cfg.ErrorPenalty, now)
			}
			if got, want := w.At(cfg, now), o.getWeight(cfg, now); math.Abs(got-want) > 1e-9*want {
				t.Fatalf("seed %d, %+v: after %d s the weight is %v, want %v by A58", seed, *cfg, s, got, want)
			}
		}
	}
}

// TestReportAllocates: nothing.
func TestReportAllocates(t *testing.T) {
	cfg := &picker.ClientWRR{Expiration: time.Minute, UtilizationFrom: []string{"named_metrics.a"}}
	rule, w := NewRule(cfg), new(Weight)
	report := &orcav3.OrcaLoadReport{RpsFractional: 100, NamedMetrics: map[string]float64{"a": 0.5}}
	if n := testing.AllocsPerRun(100, func() { w.Report(cfg, rule.Weight(report, 0.5), second) }); n != 0 {
		t.Errorf("a report allocates %v times", n)
	}
}
