// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestScore checks the arithmetic with a synthetic run: one RPC per millisecond, whose duration
// is its number. It includes the warm-up and failures.
func TestScore(t *testing.T) {
	f := &Fleet{Clients: 1, Servers: 2, Workers: 2, Warm: time.Second, Run: 2 * time.Second, Timeout: 5 * time.Second, Bad: []int{1}, BadFrom: time.Second, BadTo: 2 * time.Second}
	f.Methods, f.Need, f.Load = []Method{{Share: 1, Mean: ms}}, Fixed, 1
	c := &simulation{time: f.end()}
	models := []*Server{newServer(c, 0, 2, 0, 1), newServer(c, 1, 2, 0, 1)}
	var work []arrival
	var calls []call
	for i := range 3000 {
		at := time.Duration(i) * ms
		work = append(work, arrival{at: at})
		calls = append(calls, call{took: time.Duration(i-1000+1) * ms, failed: i >= 2990})
		models[i%4/3].arrivals.add(at, 1) // the second gets one of four
	}
	models[0].busy.spread(0, 3*time.Second)                     // one worker of two, all the time
	models[1].busy.spread(2*time.Second, 2500*time.Millisecond) // one of two, a quarter of the time
	models[0].messages = 600
	r := score(f, 1, work, calls, models)
	want := map[string][2]float64{
		"RPCs":    {float64(r.RPCs), 2000},
		"p50":     {r.P50, 1000},
		"p99":     {r.P99, 1980},
		"p99.9":   {r.P999, 5000}, // the latency of a failed RPC is its timeout
		"goodput": {r.Goodput, 1990. / 2000},
		"bad":     {r.BadShare, .25},
		"max":     {r.MaxMean, .5 / ((.5 + .125) / 2)},
		"extra":   {r.Extra, .2},
		"second":  {r.Points[1].P99, 1990},
		"failed":  {float64(r.Points[1].Failed), 10},
		"used":    {r.Utilisation[1], .125},
	}
	for name, v := range want {
		if math.Abs(v[0]-v[1]) > 1e-9*v[1] {
			t.Errorf("%s is %v, want %v", name, v[0], v[1])
		}
	}
	if r := score(f, 1, nil, nil, models); r.Error == "" {
		t.Error("a score of no RPCs")
	}
}

// TestDoubt checks that equal batches have no doubt, and that others have Student's t interval.
func TestDoubt(t *testing.T) {
	same, scattered := make([][]float64, 10), make([][]float64, 10)
	for i := range same {
		same[i], scattered[i] = []float64{7}, []float64{float64(90 + i%2*20)}
	}
	if d := doubt(same); d != 0 {
		t.Errorf("the doubt of batches that are the same is %v", d)
	}
	near(t, "doubt", doubt(scattered), 2.26*10.541/math.Sqrt(10)/100, .001)
	if d := doubt(same[:1]); d != 0 {
		t.Errorf("the doubt of one batch is %v", d)
	}
}

// TestRegret: 0 is the oracle of the same fleet, 1 is random.
func TestRegret(t *testing.T) {
	row := func(fleet string, impl Impl, policy string, p99 float64) *Result {
		return &Result{Fleet: fleet, Impl: impl, Policy: policy, P99: p99, Mode: Channels, Goodput: 1}
	}
	list := []*Result{
		row("a", Anchor, RandomName, 200), row("a", Anchor, OracleName, 100), row("a", Ours, "x", 125),
		row("b", Anchor, RandomName, 20), row("b", Anchor, OracleName, 10), row("b", Ours, "x", 25), row("b", Stock, "x", 20), row("b", Stock, "y", 24),
		row("c", Ours, "x", 25),
	}
	Judge(list)
	for i, want := range []float64{1, 0, .25, 1, 0, 1.5, 1, 1.4, 0} {
		if list[i].Regret != want {
			t.Errorf("the regret of %s in %s is %v, want %v", list[i].Row(), list[i].Fleet, list[i].Regret, want)
		}
	}
	r := &Report{Results: list, Fleets: []Description{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	v := r.Verdicts()
	if len(v) != 1 || v[0].Stock.P99 != 20 || !v[0].Lost() || len(v[0].Worse) != 1 || v[0].Worse[0] != "x" {
		t.Errorf("verdicts %+v", v)
	}
	list[5].Doubt = .3 // it may be chance
	if v := r.Verdicts(); v[0].Lost() || v[0].Worse != nil {
		t.Error("lost by an insignificant difference")
	}
	list[6].Goodput, list[7].Goodput = .9, .9 // goodput comes first
	if v := r.Verdicts(); v[0].Lost() || !better(v[0].Ours, v[0].Stock) {
		t.Error("goodput does not come first")
	}
	var b strings.Builder
	kit.Must(t, r.Write(&b))
	if !strings.Contains(b.String(), "won") || strings.Contains(b.String(), "NaN") {
		t.Errorf("the report is\n%s", b.String())
	}
}

// TestRankCorrelation: Spearman's, with values that are the same.
func TestRankCorrelation(t *testing.T) {
	x := []float64{1, 2, 3, 4, 5}
	for _, c := range []struct {
		y    []float64
		want float64
	}{{[]float64{10, 20, 30, 40, 500}, 1}, {[]float64{5, 4, 3, 2, 1}, -1}, {[]float64{2, 1, 4, 3, 5}, .8}, {[]float64{1, 1, 2, 2, 3}, .9487}} {
		if got := RankCorrelation(x, c.y); math.Abs(got-c.want) > 1e-3 {
			t.Errorf("of %v and %v: %v, want %v", x, c.y, got, c.want)
		}
	}
}

// TestCalibrationText checks that figures that deviate too much from the known ones are marked.
func TestCalibrationText(t *testing.T) {
	r := &Report{Results: []*Result{
		{Fleet: homogeneous, Impl: Anchor, Policy: RandomName, Mode: Kernels, Long: true, P99: 230},
		{Fleet: homogeneous, Impl: Anchor, Policy: RandomName, Mode: Kernels, P99: 200},
		{Fleet: homogeneous, Impl: Anchor, Policy: RandomName, Mode: Channels, P99: 300},
		{Fleet: homogeneous, Impl: Ours, Policy: "least_request", Mode: Kernels, Long: true, P99: 300},
	}}
	var b strings.Builder
	kit.Must(t, r.Write(&b))
	for _, want := range []string{"+1 %", "+50 % !", "+59 % !", "176–189"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
