// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"

	"github.com/xdslb/xdslb/bench/latency"
	"github.com/xdslb/xdslb/bench/plot"
	"github.com/xdslb/xdslb/bench/record"
)

// safe marks a chart as HTML: package plot escapes what it is given.
func safe(svg string) template.HTML { return template.HTML(svg) }

// An impl is what is compared, with its colour, which is the same on the whole
// page.
type impl struct{ Name, Colour, What string }

// impls are in the order in which charts have them.
var impls = []impl{
	{"ours", "#0072b2", "this project"},
	{"stock", "#d55e00", "google.golang.org/grpc/xds"},
	{"round_robin", "#009e73", "gRPC's round_robin over a list of addresses, no xDS"},
	{"ours_xxh3", "#56b4e9", "this project, hashing a ring with XXH3, which is an option"},
	{"heap", "#cc79a7", "a textbook's EDF: a heap under a mutex"},
	{"random", "#e69f00", "weighted random choice"},
	{"proto", "#a6761d", "proto.Unmarshal alone, without validation"},
	{"kratos_wrr", "#7f7fcf", "go-kratos, another library"},
	{"kratos_p2c", "#b15928", "go-kratos, another library"},
}

// unknown is the colour of implementations that are not in the list.
const unknown = "#8c8c8c"

// place is an implementation's in the list, and behind it if it is not there.
func place(name string) int {
	if i := slices.IndexFunc(impls, func(m impl) bool { return m.Name == name }); i >= 0 {
		return i
	}
	return len(impls)
}

func colour(name string) string {
	if i := place(name); i < len(impls) {
		return impls[i].Colour
	}
	return unknown
}

// A grid is a set of values that is being filled, by label and series.
type grid struct {
	labels []string
	series []plot.Series
}

// add sets a value. Of several the least counts.
func (g *grid) add(label, series string, value float64, doubtful bool) {
	i := slices.Index(g.labels, label)
	if i < 0 {
		i = len(g.labels)
		g.labels = append(g.labels, label)
	}
	k := slices.IndexFunc(g.series, func(s plot.Series) bool { return s.Name == series })
	if k < 0 {
		k = len(g.series)
		g.series = append(g.series, plot.Series{Name: series, Colour: colour(series)})
	}
	s := &g.series[k]
	for len(s.Values) <= i {
		s.Values, s.Doubtful = append(s.Values, math.NaN()), append(s.Doubtful, false)
	}
	if !(s.Values[i] <= value) {
		s.Values[i], s.Doubtful[i] = value, doubtful
	}
}

// rows draws the grid.
func (g *grid) rows(c plot.Chart) template.HTML {
	slices.SortStableFunc(g.series, func(a, b plot.Series) int { return cmp.Compare(place(a.Name), place(b.Name)) })
	return safe(c.Rows(g.labels, g.series))
}

// A cost is a chart of a recorded run.
type cost struct {
	title, note string
	op, unit    string
	by          string // the parameter that is the label
	only        string // a parameter, "n=1000", that results must have
	label       string // of the label, with a verb for the parameter
	linear      bool
}

var charted = []cost{
	{"An RPC, from the call to its connection", "CPU inside gRPC's channel", "Select", "cpu-ns/op", "case", "", "%s", false},
	{"A pick among 1000 endpoints, by policy", "CPU", "Policy", "cpu-ns/op", "policy", "n=1000", "%s", false},
	{"A pick from 1000 weights", "CPU", "EDF", "cpu-ns/op", "skew", "n=1000", "weights: %s", false},
	{"A pick by ring hash while endpoints are down", "CPU", "PickDown", "cpu-ns/op", "down", "", "%s %% down", false},
	{"Building a hash ring of 1000 hosts", "CPU", "Ring", "cpu-ns/op", "n", "op=build", "%s entries", false},
	{"An EDS update that changes one weight", "CPU of the client", "EDSUpdate", "client-cpu-µs/op", "n", "change=weight", "of %s endpoints", false},
	{"Decoding and validating an EDS resource", "CPU", "Decode", "cpu-ns/op", "n", "change=all", "%s endpoints", false},
	{"Starting up, from nothing to READY", "CPU", "Startup", "cpu-ms/op", "n", "", "%s endpoints", false},
	{"Memory held for an endpoint, without its connection", "bytes", "Startup", "B/endpoint", "n", "", "of %s endpoints", true},
}

// cases say what the parameter case=... of benchmarks is.
var cases = map[string]string{
	"full": "3 localities, load reports, drops", "plain": "1 locality, nothing else", "weighted": "3 localities, weights differ",
	"20routes": "behind 20 other routes", "ring": "ring hash of a header",
	"equal": "all the same", "random": "1 to 1000", "one": "one of 1000, the others 1",
}

// costs are the charts of a recorded run.
func costs(rec *record.Record) []template.HTML {
	var list []template.HTML
	for _, c := range charted {
		var g grid
		for _, r := range rec.Results {
			amount, ok := r.Value(c.unit)
			if !ok || r.Op != c.op || r.Param("impl") == "none" || c.only != "" && !slices.ContainsFunc(r.Params, func(p record.Setting) bool { return p.String() == c.only }) {
				continue
			}
			g.add(c.labelOf(&r), r.Param("impl"), amount, false)
		}
		if len(g.labels) > 0 {
			list = append(list, g.rows(plot.Chart{Title: c.title, Note: c.note, Log: !c.linear,
				Base: "ours", Format: c.format}))
		}
	}
	return list
}

func (c *cost) format(v float64) string {
	if c.linear {
		return fmt.Sprintf("%.0f", v)
	}
	return record.Cell{Amount: v}.In(c.unit)
}

func (c *cost) labelOf(r *record.Result) string {
	v := r.Param(c.by)
	if text := cases[v]; text != "" {
		v = text
	}
	if c.by == "case" {
		v += ", " + r.Param("n") + " endpoints"
	}
	return fmt.Sprintf(c.label, v)
}

// policyCharts are latencies, one chart for each percentile.
func policyCharts(lat *latency.Report) []template.HTML {
	if len(lat.Policies) == 0 {
		return nil
	}
	var list []template.HTML
	for _, c := range []struct {
		name string
		of   func(latency.Run) (took, lag float64)
	}{
		{"Median", func(r latency.Run) (took, lag float64) { return r.P50, r.Lag50 }},
		{"99th percentile", func(r latency.Run) (took, lag float64) { return r.P99, r.Lag99 }},
		{"99.9th percentile", func(r latency.Run) (took, lag float64) { return r.P999, r.Lag999 }},
	} {
		var g grid
		for _, r := range lat.Policies {
			if r.Error == "" {
				took, lag := c.of(r)
				g.add(r.Policy, r.Impl, took, latency.Late(took, lag))
			}
		}
		list = append(list, g.rows(plot.Chart{Title: c.name + " of the latency, by policy", Note: "milliseconds, less is better", Base: "ours", Format: millis}))
	}
	return list
}

func millis(v float64) string { return record.Cell{Amount: v}.In("cpu-ms/op") }

func percent(v float64) string { return fmt.Sprintf("%.1f %%", v) }

// shareCharts show who got what. Capacities are the same in all runs; the first
// backend is the slow one.
func shareCharts(lat *latency.Report) []template.HTML {
	var slow, most grid
	capacity, other := 0., 0.
	for _, r := range lat.Policies {
		if r.Error != "" || len(r.Shares) < 2 {
			continue
		}
		capacity, other = 100*r.Shares[0].Capacity, 100*r.Shares[1].Capacity
		top := slices.MaxFunc(r.Shares[1:], func(a, b latency.Share) int { return cmp.Compare(a.Got, b.Got) })
		slow.add(r.Policy, r.Impl, 100*r.Shares[0].Got, false)
		most.add(r.Policy, r.Impl, 100*top.Got, false)
	}
	if len(slow.labels) == 0 {
		return nil
	}
	return []template.HTML{
		slow.rows(plot.Chart{Title: "What the slow backend got", Note: fmt.Sprintf("percent of the RPCs; it has %.1f %% of the capacity", capacity), Format: percent}),
		most.rows(plot.Chart{Title: "What the busiest of the nine others got", Note: fmt.Sprintf("percent of the RPCs; each has %.1f %% of the capacity", other), Format: percent}),
	}
}

// eventCharts show latencies over time, and where RPCs went.
func eventCharts(lat *latency.Report) []template.HTML {
	var list []template.HTML
	for i, r := range lat.Events {
		if slices.ContainsFunc(lat.Events[:i], func(e latency.Run) bool { return e.Event == r.Event }) {
			continue
		}
		marks := make(map[float64]string)
		for _, m := range r.Marks {
			marks[m.Second] = m.Label
		}
		var slow, moved []plot.Series
		for _, e := range lat.Events {
			if e.Event != r.Event || e.Error != "" {
				continue
			}
			var x, p99, there []float64
			for _, b := range e.Buckets {
				took, part := b.P99, 100*b.Moved
				if latency.Late(b.P99, b.Lag99) {
					took, part = math.NaN(), math.NaN()
				}
				x, p99, there = append(x, b.Second), append(p99, took), append(there, part)
			}
			slow = append(slow, plot.Series{Name: fmt.Sprintf("%s (%d failed)", e.Impl, e.Failed), Colour: colour(e.Impl), X: x, Values: p99})
			moved = append(moved, plot.Series{Name: e.Impl, Colour: colour(e.Impl), X: x, Values: there})
		}
		slices.Reverse(slow) // ours first, as in the other charts
		slices.Reverse(moved)
		list = append(list,
			safe(plot.Chart{Title: r.Event + ": latency", X: "seconds", Note: "99th percentile of each tenth of a second", Log: true, Format: millis}.Lines(slow, marks)),
			safe(plot.Chart{Title: r.Event + ": where RPCs go", X: "seconds", Note: "percent that the second locality answers", Format: percent}.Lines(moved, marks)))
	}
	return list
}

// lateRuns counts the runs with a 99th percentile that is not to be trusted.
func lateRuns(lat *latency.Report) (late, all int) {
	for _, r := range slices.Concat(lat.Policies, lat.Events) {
		if r.Error != "" {
			continue
		}
		all++
		if latency.Late(r.P99, r.Lag99) {
			late++
		}
	}
	return late, all
}
