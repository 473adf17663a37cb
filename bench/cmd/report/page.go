// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"slices"

	"github.com/xdslb/xdslb/bench/latency"
	"github.com/xdslb/xdslb/bench/record"
)

//go:embed page.html
var layout string

// A page is what the layout shows.
type page struct {
	Settings []record.Setting
	Impls    []impl
	Late     int // runs of the latency study that are not to be trusted
	Runs     int
	Costs    []template.HTML // charts of the benchmarks
	Latency  *latency.Report
	Policies []template.HTML
	Shares   []template.HTML
	Events   []template.HTML
	Tables   []*record.Table
}

func render(rec *record.Record, lat *latency.Report) ([]byte, error) {
	late, runs := lateRuns(lat)
	p := page{
		Settings: rec.Config,
		Impls:    used(rec, lat),
		Late:     late,
		Runs:     runs,
		Costs:    costs(rec),
		Latency:  lat,
		Policies: policyCharts(lat),
		Shares:   shareCharts(lat),
		Events:   eventCharts(lat),
		Tables:   rec.Tables("impl", "ns/op", "cpu-ns/op", "cpu-µs/op", "cpu-ms/op", "KiB/op", "B/endpoint", "down-B/op", "up-B/op", "allocs/op"),
	}
	t, err := template.New("page").Funcs(template.FuncMap{
		"ms": func(took, lag float64) string {
			if latency.Late(took, lag) {
				return fmt.Sprintf("%.2f †", took)
			}
			return fmt.Sprintf("%.2f", took)
		},
		"percent": func(part float64) string { return fmt.Sprintf("%.1f", 100*part) },
		"cell": func(t *record.Table, row record.Row, column string) string {
			return t.Cell(row.Name, column).In(t.Unit)
		},
		"ratio": func(t *record.Table, row record.Row, column string) string {
			if column == "ours" {
				return ""
			}
			return t.Cell(row.Name, column).Ratio(t.Cell(row.Name, "ours"))
		},
	}).Parse(layout)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// used are the implementations that there are results of.
func used(rec *record.Record, lat *latency.Report) []impl {
	return slices.DeleteFunc(slices.Clone(impls), func(m impl) bool {
		return !slices.ContainsFunc(rec.Results, func(r record.Result) bool { return r.Param("impl") == m.Name }) &&
			!slices.ContainsFunc(lat.Policies, func(r latency.Run) bool { return r.Impl == m.Name })
	})
}
