// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"html/template"

	"github.com/xdslb/xdslb/bench/latency"
	"github.com/xdslb/xdslb/bench/record"
)

//go:embed page.html
var layout string

// A page is what the layout shows.
type page struct {
	Settings []record.Setting
	Costs    []template.HTML // charts of the benchmarks
	Latency  *latency.Report
	Policies []template.HTML
	Shares   []template.HTML
	Events   []template.HTML
	Tables   []*record.Table
}

func render(rec *record.Record, lat *latency.Report) ([]byte, error) {
	p := page{
		Settings: rec.Config,
		Costs:    costs(rec),
		Latency:  lat,
		Policies: policyCharts(lat),
		Shares:   shareCharts(lat),
		Events:   eventCharts(lat),
		Tables:   rec.Tables("impl", "ns/op", "cpu-ns/op", "cpu-µs/op", "cpu-ms/op", "KiB/op", "B/endpoint", "allocs/op"),
	}
	t, err := template.New("page").Funcs(template.FuncMap{
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
