// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"

	"github.com/xdslb/xdslb/bench/latency"
	"github.com/xdslb/xdslb/bench/plot"
	"github.com/xdslb/xdslb/bench/record"
)

// safe marks a chart as HTML: package plot escapes what it is given.
func safe(svg string) template.HTML { return template.HTML(svg) }

// A grid is a set of bars that is being filled, by label and series.
type grid struct {
	labels []string
	series []plot.Series
}

// add sets a value. Of several the least counts.
func (g *grid) add(label, series string, value float64) {
	i := slices.Index(g.labels, label)
	if i < 0 {
		i = len(g.labels)
		g.labels = append(g.labels, label)
	}
	k := slices.IndexFunc(g.series, func(s plot.Series) bool { return s.Name == series })
	if k < 0 {
		k = len(g.series)
		g.series = append(g.series, plot.Series{Name: series})
	}
	s := &g.series[k]
	for len(s.Values) <= i {
		s.Values = append(s.Values, math.NaN())
	}
	if !(s.Values[i] <= value) {
		s.Values[i] = value
	}
}

// bars draws the grid, with the series in an order that gives each
// implementation the same colour in all charts.
func (g *grid) bars(c plot.Chart) template.HTML {
	slices.SortStableFunc(g.series, func(a, b plot.Series) int { return cmp.Compare(rank(a.Name), rank(b.Name)) })
	return safe(c.Bars(g.labels, g.series))
}

func rank(series string) int {
	order := []string{"ours", "stock", "round_robin", "capacity"}
	if i := slices.Index(order, series); i >= 0 {
		return i
	}
	return len(order)
}

// costs are the charts of a recorded run.
func costs(rec *record.Record) []template.HTML {
	var list []template.HTML
	for _, c := range []struct {
		chart    plot.Chart
		op, unit string
		by       string // the parameter that is the label
		only     string // a parameter, "n=1000", that results must have
	}{
		{plot.Chart{Title: "An RPC from the call to its connection, in gRPC's channel", Y: "ns of CPU", Log: true}, "Select", "cpu-ns/op", "case", ""},
		{plot.Chart{Title: "Pick among 1000 endpoints, by policy and peer", Y: "ns of CPU", Log: true}, "Policy", "cpu-ns/op", "policy", "n=1000"},
		{plot.Chart{Title: "Pick from a weighted sequence of 1000", Y: "ns of CPU", Log: true}, "EDF", "cpu-ns/op", "skew", "n=1000"},
		{plot.Chart{Title: "Pick by ring hash, by percent of endpoints down", Y: "ns of CPU", Log: true}, "PickDown", "cpu-ns/op", "down", ""},
		{plot.Chart{Title: "Build of a ring of 1000 hosts, by entries", Y: "ns of CPU", Log: true}, "Ring", "cpu-ns/op", "n", "op=build"},
		{plot.Chart{Title: "EDS update that changes one weight, by endpoints; none is the control plane's part", Y: "µs of CPU", Log: true}, "EDSUpdate", "cpu-µs/op", "n", "change=weight"},
		{plot.Chart{Title: "Decode and validate an EDS resource, by endpoints", Y: "ns of CPU", Log: true}, "Decode", "cpu-ns/op", "n", "change=all"},
		{plot.Chart{Title: "Start-up of a target, by endpoints", Y: "ms of CPU", Log: true}, "Startup", "cpu-ms/op", "n", ""},
		{plot.Chart{Title: "Held for each endpoint, without connections", Y: "bytes"}, "Startup", "B/endpoint", "n", ""},
	} {
		var g grid
		for _, r := range rec.Results {
			amount, ok := r.Value(c.unit)
			if !ok || r.Op != c.op || c.only != "" && !slices.ContainsFunc(r.Params, func(p record.Setting) bool { return p.String() == c.only }) {
				continue
			}
			label := r.Param(c.by)
			if c.by == "case" {
				label += " n=" + r.Param("n")
			}
			g.add(label, r.Param("impl"), amount)
		}
		if len(g.labels) > 0 {
			list = append(list, g.bars(c.chart))
		}
	}
	return list
}

// policyCharts are latencies, one chart for each percentile.
func policyCharts(lat *latency.Report) []template.HTML {
	if len(lat.Policies) == 0 {
		return nil
	}
	var list []template.HTML
	for _, c := range []struct {
		name string
		of   func(latency.Run) float64
	}{
		{"Median", func(r latency.Run) float64 { return r.P50 }},
		{"p99", func(r latency.Run) float64 { return r.P99 }},
		{"p99.9", func(r latency.Run) float64 { return r.P999 }},
	} {
		var g grid
		for _, r := range lat.Policies {
			if r.Error == "" {
				g.add(r.Policy, r.Impl, c.of(r))
			}
		}
		list = append(list, g.bars(plot.Chart{Title: c.name + " latency by policy", Y: "ms"}))
	}
	return list
}

// shareCharts show who got what, one chart for each policy.
func shareCharts(lat *latency.Report) []template.HTML {
	var names []string
	grids := make(map[string]*grid)
	for _, r := range lat.Policies {
		if r.Error != "" {
			continue
		}
		g := grids[r.Policy]
		if g == nil {
			g = &grid{}
			grids[r.Policy] = g
			names = append(names, r.Policy)
			for i, s := range r.Shares {
				g.add(strconv.Itoa(i+1), "capacity", 100*s.Capacity)
			}
		}
		for i, s := range r.Shares {
			g.add(strconv.Itoa(i+1), r.Impl, 100*s.Got)
		}
	}
	var list []template.HTML
	for _, name := range names {
		list = append(list, grids[name].bars(plot.Chart{Title: "Shares by " + name, Y: "percent"}))
	}
	return list
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
				x, p99, there = append(x, b.Second), append(p99, b.P99), append(there, 100*b.Moved)
			}
			name := e.Impl
			if e.Failed > 0 {
				name = fmt.Sprintf("%s (%d failed)", e.Impl, e.Failed)
			}
			slow = append(slow, plot.Series{Name: name, X: x, Values: p99})
			moved = append(moved, plot.Series{Name: e.Impl, X: x, Values: there})
		}
		slices.Reverse(slow) // ours first, as in the other charts
		slices.Reverse(moved)
		list = append(list,
			safe(plot.Chart{Title: r.Event + ": p99 of each tenth of a second", X: "s", Y: "ms", Log: true}.Lines(slow, marks)),
			safe(plot.Chart{Title: r.Event + ": RPCs that the second locality answers", X: "s", Y: "percent"}.Lines(moved, marks)))
	}
	return list
}
