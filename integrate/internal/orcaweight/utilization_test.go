// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package orcaweight

import (
	"math"
	"testing"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
)

// TestUtilization has Envoy's order: metrics by name, the application, the processor.
func TestUtilization(t *testing.T) {
	type report = orcav3.OrcaLoadReport
	type values = map[string]float64
	for _, test := range []struct {
		name    string
		metrics []string
		report  *report
		want    float64
	}{
		{"processor", nil, &report{CpuUtilization: .5}, .5},
		{"application first", nil, &report{CpuUtilization: .5, ApplicationUtilization: .25}, .25},
		{"metrics before that, the greatest", []string{"named_metrics.a", "named_metrics.b"}, &report{ApplicationUtilization: .25, NamedMetrics: values{"a": .1, "b": .2, "c": .9}}, .2},
		{"metrics that are not there", []string{"named_metrics.a"}, &report{ApplicationUtilization: .25, CpuUtilization: .5}, .25},
		{"metrics that are not numbers", []string{"named_metrics.a", "named_metrics.b"}, &report{ApplicationUtilization: .25, NamedMetrics: values{"a": nan, "b": inf}}, .25},
		{"metrics that are 0", []string{"named_metrics.a"}, &report{CpuUtilization: .5, NamedMetrics: values{"a": 0}}, .5},
		{"nothing", nil, &report{}, 0},
		{"absurd", nil, &report{ApplicationUtilization: math.MaxFloat64}, 10},
		{"absurd metric", []string{"named_metrics.a"}, &report{NamedMetrics: values{"a": 1e300}}, 10},
		{"nonsense", nil, &report{ApplicationUtilization: -1, CpuUtilization: nan}, 0},
	} {
		if got := NewUtilization(test.metrics).Of(test.report); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestSample(t *testing.T) {
	var s Sample
	if got := s.At(0, 5); got != 0 {
		t.Errorf("%v without a report", got)
	}
	s.Report(.5, 10)
	s.Report(0, 15) // ignored
	for _, test := range []struct {
		expiration time.Duration
		now        int64
		want       float64
	}{{100, 10, .5}, {100, 110, .5}, {100, 111, 0}, {0, math.MaxInt64, .5}} {
		if got := s.At(test.expiration, test.now); got != test.want {
			t.Errorf("%v at %d with an expiration of %d, want %v", got, test.now, test.expiration, test.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { s.Report(.5, 10) }); n != 0 {
		t.Errorf("Report allocates %v times", n)
	}
}

// It makes no difference how often samples come.
func TestSmoothed(t *testing.T) {
	var often, rarely Smoothed
	often.Add(1, time.Second, time.Minute)
	rarely.Add(1, time.Hour, time.Minute)
	if often.Value != 1 || rarely.Value != 1 {
		t.Fatalf("first samples are %v and %v, want 1", often.Value, rarely.Value)
	}
	for range 60 {
		often.Add(0, time.Second, time.Minute)
	}
	rarely.Add(0, time.Minute, time.Minute)
	if want := 1 / math.E; math.Abs(often.Value-want) > 1e-9 || math.Abs(rarely.Value-want) > 1e-9 {
		t.Errorf("%v and %v after a time constant, want %v", often.Value, rarely.Value, want)
	}
}
