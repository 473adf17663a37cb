// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	estats "google.golang.org/grpc/experimental/stats"
)

// TestMetricsTable: METRICS.md describes each metric as it is registered with gRPC.
func TestMetricsTable(t *testing.T) {
	page, err := os.ReadFile("METRICS.md")
	kit.Must(t, err)
	var rows []string
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); strings.HasPrefix(line, "| `xdslb.") && len(cells) == 10 {
			cells = slices.Delete(cells[1:9], 4, 6) // its description and its cost
			for i := range cells {
				cells[i] = strings.Trim(cells[i], " ")
			}
			rows = append(rows, strings.Join(cells, " | "))
		}
	}
	var want []string
	for _, m := range metric.All() {
		d := estats.DescriptorForMetric(m.Name)
		if d == nil {
			t.Fatalf("metric %s is not registered", m.Name)
		}
		var labels []string
		for _, l := range d.Labels {
			labels = append(labels, "`"+l+"`")
		}
		for _, l := range d.OptionalLabels {
			labels = append(labels, "[`"+l+"`]")
		}
		byDefault, stock := "off", "–"
		if d.Default {
			byDefault = "on"
		}
		if name := StockMetricName(m.Name); name != "" {
			stock = "`" + name + "`"
		}
		kind := [...]string{estats.MetricTypeIntCount: "count", estats.MetricTypeFloatHisto: "histogram", estats.MetricTypeIntAsyncGauge: "gauge"}[d.Type]
		want = append(want, strings.Join([]string{"`" + d.Name + "`", kind, d.Unit, strings.Join(labels, ", "), byDefault, stock}, " | "))
	}
	for i := range max(len(rows), len(want)) {
		switch {
		case i >= len(rows):
			t.Errorf("METRICS.md lacks %s", want[i])
		case i >= len(want):
			t.Errorf("METRICS.md has a row too many: %s", rows[i])
		case rows[i] != want[i]:
			t.Errorf("METRICS.md has\n\t%s\nand gRPC\n\t%s", rows[i], want[i])
		}
	}
	if names := Metrics().Metrics(); len(names) != len(want) {
		t.Errorf("Metrics has %d names, want %d", len(names), len(want))
	}
}
