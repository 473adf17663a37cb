// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/xdslb/xdslb/bench/arena"
	"github.com/xdslb/xdslb/bench/plot"
)

//go:embed page.html
var layout string

// A page is what the layout shows.
type page struct {
	*arena.Report
	Regret, P99 template.HTML
	Fleets      []fleetCharts
	Text        string
}

type fleetCharts struct {
	Name, About string
	Charts      []template.HTML
}

// The colours of rows: stock's warm, ours cold, the anchors grey.
var palette = map[arena.Impl][]string{
	arena.Anchor: {"#777777", "#222222", "#aaaaaa", "#bbaa88"},
	arena.Stock:  {"#d55e00", "#e69f00", "#cc79a7", "#a0522d"},
	arena.Ours:   {"#0072b2", "#009e73", "#56b4e9", "#332288", "#117733", "#44aa99", "#6699cc", "#88ccee", "#0c2461", "#7f7fff"},
}

// colour is that of a row, by its place among those of its implementation.
func colour(row string) string {
	seen := map[arena.Impl]int{}
	for _, p := range arena.Policies() {
		list := palette[p.Impl]
		if p.String() == row {
			return list[seen[p.Impl]%len(list)]
		}
		seen[p.Impl]++
	}
	return "#888888"
}

func render(r *arena.Report) ([]byte, error) {
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		return nil, err
	}
	p := page{Report: r, Text: text.String()}
	p.Regret = overview(r, plot.Chart{Title: "Regret by fleet and policy", Note: "0 is the oracle, 1 is random; less is better", Format: func(v float64) string { return fmt.Sprintf("%.3f", v) }},
		func(x *arena.Result) float64 { return x.Regret })
	p.P99 = overview(r, plot.Chart{Title: "99th percentile by fleet and policy", Note: "milliseconds", Log: true, Format: arena.Millis},
		func(x *arena.Result) float64 { return x.P99 })
	for _, f := range r.Fleets {
		if list := r.Of(arena.Channels, false, f.Name); len(list) > 0 {
			p.Fleets = append(p.Fleets, fleetCharts{f.Name, f.About, charts(list)})
		}
	}
	t, err := template.New("page").Parse(layout)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, p)
	return b.Bytes(), err
}

// overview has a row for each fleet and policy.
func overview(r *arena.Report, c plot.Chart, of func(*arena.Result) float64) template.HTML {
	var labels []string
	var series []plot.Series
	for _, p := range arena.Policies() {
		series = append(series, plot.Series{Name: short(p.String()), Colour: colour(p.String())})
	}
	for _, f := range r.Fleets {
		list := r.Of(arena.Channels, false, f.Name)
		if len(list) == 0 {
			continue
		}
		labels = append(labels, f.Name)
		for i, p := range arena.Policies() {
			v := math.NaN()
			if k := slices.IndexFunc(list, func(x *arena.Result) bool { return x.Row() == p.String() && x.Error == "" }); k >= 0 {
				v = max(0, of(list[k]))
			}
			series[i].Values = append(series[i].Values, v)
		}
	}
	return template.HTML(c.Rows(labels, series)) // made by package plot, which escapes
}

// short fits into the margin of a chart.
func short(row string) string {
	row = strings.TrimPrefix(row, string(arena.Anchor)+" ")
	return strings.NewReplacer("round_robin", "rr", "least_request", "lr", "least_latency", "ll", "client_wrr", "wrr", " by weight", ", weights").Replace(row)
}

// charts are those of a fleet: latencies over time, and utilisations by server.
func charts(list []*arena.Result) []template.HTML {
	marks := map[float64]string{}
	var late, used []plot.Series
	for _, r := range list {
		if r.Error != "" {
			continue
		}
		for _, m := range r.Marks {
			marks[m.Second] = m.Label
		}
		l := plot.Series{Name: short(r.Row()), Colour: colour(r.Row())}
		u := l
		for _, p := range r.Points {
			v := p.P99
			if p.RPCs == 0 {
				v = math.NaN()
			}
			l.X, l.Values = append(l.X, p.Second), append(l.Values, v)
		}
		for i, v := range r.Utilisation {
			u.X, u.Values = append(u.X, float64(i)), append(u.Values, 100*v)
		}
		late, used = append(late, l), append(used, u)
	}
	percent := func(v float64) string { return fmt.Sprintf("%.0f %%", v) }
	return []template.HTML{ // made by package plot, which escapes
		template.HTML(plot.Chart{Title: "Latency", Note: "99th percentile of each second, in milliseconds", X: "seconds", Log: true, Format: arena.Millis}.Lines(late, marks)),
		template.HTML(plot.Chart{Title: "Utilisation", Note: "percent of the workers' time", X: "server", Format: percent}.Lines(used, nil)),
	}
}
