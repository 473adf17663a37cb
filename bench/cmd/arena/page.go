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
	Best   template.HTML
	Fleets []fleetCharts
	Text   string
}

type fleetCharts struct {
	Name, About string
	Charts      []template.HTML
}

// The colours of policies: stock's warm, ours cold, the anchors grey. What goes with a policy
// (", hedged") has its colour, and another dash. All show on white and on black.
var palette = map[arena.Impl][]string{
	arena.Anchor: {"#999999", "currentColor", "#bbaa88"},
	arena.Stock:  {"#d55e00", "#e69f00", "#cc79a7", "#a0522d"},
	arena.Ours:   {"#0072b2", "#009e73", "#56b4e9", "#a05fd6", "#7b68ee", "#117733", "#3d8b9e"},
}

var dashes = []string{"", "7 3", "2 3", "9 3 2 3", "14 4", "4 2", "1 5", "12 3 1 3 1 3", "6 6", "3 6", "10 2", "8 2 1 2 1 2", "16 8"}

// style is the colour and the dash of a row, by the place of its policy among those of its
// implementation, and its own among those of its policy.
func style(row string) (colour, dash string) {
	var seen []string // policies of the implementation
	same := map[string]int{}
	for _, p := range arena.Policies() {
		if !strings.HasPrefix(row, string(p.Impl)+" ") {
			continue
		}
		base := policyOf(p.Name)
		if !slices.Contains(seen, base) {
			seen = append(seen, base)
		}
		if p.String() == row {
			list := palette[p.Impl]
			return list[slices.Index(seen, base)%len(list)], dashes[same[base]%len(dashes)]
		}
		same[base]++
	}
	return "#888888", ""
}

// policyOf is a policy without what goes with it.
func policyOf(name string) string {
	for _, end := range []string{",", " by ", " of "} {
		name, _, _ = strings.Cut(name, end)
	}
	return name
}

func render(r *arena.Report) ([]byte, error) {
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		return nil, err
	}
	p := page{Report: r, Text: text.String(), Best: best(r)}
	for _, f := range r.Fleets {
		if list := played(r.Of(arena.Channels, false, f.Name)); len(list) > 0 {
			p.Fleets = append(p.Fleets, fleetCharts{f.Name, f.About, charts(&f, list)})
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

// played are the results that are one.
func played(list []*arena.Result) []*arena.Result {
	return slices.DeleteFunc(list, func(r *arena.Result) bool { return r.Error != "" })
}

// best has the best of stock and of ours in each fleet, between random and the oracle.
func best(r *arena.Report) template.HTML {
	var labels []string
	series := []plot.Series{{Name: "random", Colour: "#999999"}, {Name: "stock's best", Colour: "#d55e00"}, {Name: "our best", Colour: "#0072b2"}, {Name: "oracle", Colour: "currentColor"}}
	for _, v := range r.Verdicts() {
		labels = append(labels, v.Fleet)
		random, oracle := anchor(r, v.Fleet, arena.RandomName), anchor(r, v.Fleet, arena.OracleName)
		for i, x := range []*arena.Result{random, v.Stock, v.Ours, oracle} {
			value, note := math.NaN(), ""
			if x != nil {
				value, note = x.P99, goodput(x)
				if x.Impl != arena.Anchor {
					note = strings.TrimPrefix(x.Policy+", "+note, ", ")
				}
			}
			series[i].Values, series[i].Notes = append(series[i].Values, value), append(series[i].Notes, strings.TrimSuffix(note, ", "))
		}
	}
	return template.HTML(plot.Chart{Title: "The best policies by fleet", Note: "99th percentile of the latency in milliseconds, less is better", Log: true, Format: arena.Millis}.Rows(labels, series)) // made by package plot, which escapes
}

func anchor(r *arena.Report, fleet, name string) *arena.Result {
	for _, x := range r.Of(arena.Channels, false, fleet) {
		if x.Impl == arena.Anchor && x.Policy == name && x.Error == "" {
			return x
		}
	}
	return nil
}

// goodput is the part of the RPCs that succeed where it is worth a word.
func goodput(x *arena.Result) string {
	if x.Goodput > .9995 {
		return ""
	}
	return fmt.Sprintf("%.1f %% ok", 100*x.Goodput)
}

// charts are those of a fleet: all rows; latencies over time and utilisations by server of
// those that are worth a line.
func charts(f *arena.Description, list []*arena.Result) []template.HTML {
	var rows []plot.Series
	for _, r := range list {
		colour, _ := style(r.Row())
		notes := []string{goodput(r)}
		if f.Repeats {
			notes = append(notes, fmt.Sprintf("%.2f attempts", r.Attempts))
		}
		notes = slices.DeleteFunc(notes, func(n string) bool { return n == "" })
		rows = append(rows, plot.Series{Name: name(r), Colour: colour, Values: []float64{r.P99}, Notes: []string{strings.Join(notes, ", ")}})
	}
	marks := map[float64]string{}
	var late, used []plot.Series
	for _, r := range foremost(list) {
		for _, m := range r.Marks {
			marks[m.Second] = m.Label
		}
		l := plot.Series{Name: name(r)}
		l.Colour, l.Dash = style(r.Row())
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
	few := "; the best two of stock and of ours"
	return []template.HTML{ // made by package plot, which escapes
		template.HTML(plot.Chart{Title: "All policies", Note: "99th percentile of the latency in milliseconds", Log: true, Format: arena.Millis}.Rows([]string{""}, rows)),
		template.HTML(plot.Chart{Title: "Latency over time", Note: "p99 of each second in ms" + few, X: "seconds", Log: true, Format: arena.Millis}.Lines(late, marks)),
		template.HTML(plot.Chart{Title: "How busy each server was", Note: "percent of the workers' time" + few, X: "server", Format: percent, Dots: true}.Lines(used, nil)),
	}
}

// foremost are the anchors that all are compared with, and the best two of stock and of ours.
func foremost(list []*arena.Result) (out []*arena.Result) {
	for _, impl := range []arena.Impl{arena.Anchor, arena.Stock, arena.Ours} {
		of := slices.DeleteFunc(slices.Clone(list), func(r *arena.Result) bool { return r.Impl != impl })
		if impl == arena.Anchor {
			of = slices.DeleteFunc(of, func(r *arena.Result) bool { return r.Policy != arena.RandomName && r.Policy != arena.OracleName })
		} else {
			slices.SortStableFunc(of, arena.Compare)
		}
		out = append(out, of[:min(2, len(of))]...)
	}
	return out
}

// name is that of a row on the page.
func name(r *arena.Result) string { return strings.TrimPrefix(r.Row(), string(arena.Anchor)+" ") }
