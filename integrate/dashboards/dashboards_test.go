// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package dashboards tests the Grafana dashboards and the Prometheus alert rules of this folder. It
// is a module of its own because of Prometheus' parser.
package dashboards

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

var write = flag.Bool("update", false, "write the files for stock's names, and the layout of the dashboards")

// The files for the metrics of google.golang.org/grpc/xds are made from the ones for xdslb's.
const (
	dashboard, stockDashboard = "grafana.json", "grafana-stock.json"
	rules, stockRules         = "prometheus.yml", "prometheus-stock.yml"
)

// An instrument is a row of METRICS.md, or a metric of gRPC itself.
type instrument struct {
	name, kind, unit string
	labels           []string
	stock            string // stock's name, or ""
}

// ofGRPC are metrics of gRPC's OpenTelemetry plugin that dashboards show (gRFCs A66 and A94).
var ofGRPC = []instrument{
	{"grpc.client.attempt.started", "count", "{attempt}", []string{"grpc.method", "grpc.target"}, ""},
	{"grpc.client.attempt.duration", "histogram", "s", []string{"grpc.method", "grpc.target", "grpc.status"}, ""},
	{"grpc.client.call.duration", "histogram", "s", []string{"grpc.method", "grpc.target", "grpc.status"}, ""},
	{"grpc.subchannel.open_connections", "gauge", "{connection}", []string{"grpc.target"}, ""},
	{"grpc.subchannel.disconnections", "count", "{disconnection}", []string{"grpc.target"}, ""},
	{"grpc.subchannel.connection_attempts_failed", "count", "{attempt}", []string{"grpc.target"}, ""},
}

// instruments returns the metrics of METRICS.md, which a test of package integrate compares with
// those that are registered.
func instruments(t *testing.T) (list []instrument) {
	t.Helper()
	unquoted := func(s string) string { return strings.Trim(s, " `[]") }
	for line := range strings.Lines(read(t, "../METRICS.md")) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| `xdslb.") || len(cells) != 10 {
			continue
		}
		i := instrument{name: unquoted(cells[1]), kind: unquoted(cells[2]), unit: unquoted(cells[3])}
		for label := range strings.SplitSeq(cells[4], ",") {
			i.labels = append(i.labels, unquoted(label))
		}
		if stock := unquoted(cells[8]); strings.HasPrefix(stock, "grpc.") {
			i.stock = stock
		}
		list = append(list, i)
	}
	if len(list) == 0 {
		t.Fatal("METRICS.md has no metrics")
	}
	return list
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// exported records a value of each metric, and returns the labels of the series that OpenTelemetry's
// exporter for Prometheus has of them, by the name of the series.
func exported(t *testing.T, list ...instrument) map[string][]string {
	t.Helper()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutTargetInfo(), exporter.WithoutScopeInfo())
	if err != nil {
		t.Fatal(err)
	}
	meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test")
	for _, i := range list {
		var values []attribute.KeyValue
		for _, label := range i.labels {
			values = append(values, attribute.String(label, "x"))
		}
		with := metric.WithAttributes(values...)
		switch i.kind {
		case "count":
			var c metric.Int64Counter
			if c, err = meter.Int64Counter(i.name, metric.WithUnit(i.unit)); err == nil {
				c.Add(t.Context(), 1, with)
			}
		case "gauge":
			var g metric.Int64Gauge
			if g, err = meter.Int64Gauge(i.name, metric.WithUnit(i.unit)); err == nil {
				g.Record(t.Context(), 1, with)
			}
		case "histogram":
			var h metric.Float64Histogram
			if h, err = meter.Float64Histogram(i.name, metric.WithUnit(i.unit)); err == nil {
				h.Record(t.Context(), 1, with)
			}
		default:
			err = fmt.Errorf("%s is a %s", i.name, i.kind)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string][]string{}
	for _, f := range families {
		labels := []string{"instance", "job"} // added by Prometheus
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		names := []string{f.GetName()}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			names = []string{f.GetName() + "_bucket", f.GetName() + "_count", f.GetName() + "_sum"}
		}
		for _, name := range names {
			series[name] = labels
			if strings.HasSuffix(name, "_bucket") {
				series[name] = append([]string{"le"}, labels...)
			}
		}
	}
	return series
}

// check returns the errors of a query, and adds the series that it reads.
func check(query string, series map[string][]string, used map[string]bool) (faults []string) {
	query = strings.NewReplacer("$__rate_interval", "5m", "$target", ".*").Replace(query)
	expr, err := promql.ParseExpr(query)
	if err != nil {
		return []string{err.Error()}
	}
	var known []string // labels of the series of the query
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		labels := series[v.Name]
		if labels == nil {
			faults = append(faults, fmt.Sprintf("there is no series %s", v.Name))
		}
		used[v.Name], known = true, append(known, labels...)
		for _, m := range v.LabelMatchers {
			if m.Name != model.MetricNameLabel && !slices.Contains(labels, m.Name) {
				faults = append(faults, fmt.Sprintf("%s has no label %s", v.Name, m.Name))
			}
		}
		return nil
	})
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		var labels []string
		switch n := n.(type) {
		case *parser.AggregateExpr:
			labels = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				labels = append(slices.Clone(n.VectorMatching.MatchingLabels), n.VectorMatching.Include...)
			}
		}
		for _, l := range labels {
			if !slices.Contains(known, l) {
				faults = append(faults, fmt.Sprintf("no series has label %s", l))
			}
		}
		return nil
	})
	return faults
}

var promql = parser.NewParser(parser.Options{})

// A board is a Grafana dashboard. The fields that tests do not read are kept.
type board map[string]any

func parsed(t *testing.T, text string) board {
	t.Helper()
	var b board
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b board) panels() (list []map[string]any) {
	for _, p := range b["panels"].([]any) {
		list = append(list, p.(map[string]any))
	}
	return list
}

func targets(panel map[string]any) (list []map[string]any) {
	all, _ := panel["targets"].([]any)
	for _, target := range all {
		list = append(list, target.(map[string]any))
	}
	return list
}

// laidOut numbers the panels and places them in rows of three.
func (b board) laidOut(t *testing.T) string {
	t.Helper()
	x, y := 0, 0
	for i, p := range b.panels() {
		p["id"] = i + 1
		if p["type"] == "row" {
			if x > 0 {
				x, y = 0, y+8
			}
			p["gridPos"] = map[string]any{"x": 0, "y": y, "w": 24, "h": 1}
			y++
			continue
		}
		p["gridPos"] = map[string]any{"x": x, "y": y, "w": 8, "h": 8}
		if x += 8; x == 24 {
			x, y = 0, y+8
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(b); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// forStock makes the dashboard for stock's metrics: without the queries of metrics that stock does
// not have, and without panels and rows that are empty then.
func forStock(t *testing.T, b board, renamed func(string) (string, bool)) string {
	t.Helper()
	b["title"], b["uid"] = "xDS with google.golang.org/grpc/xds", "xdslb-stock"
	var kept []any
	for _, p := range b.panels() {
		var list []any
		for _, target := range targets(p) {
			if expr, ok := renamed(target["expr"].(string)); ok {
				target["expr"] = expr
				list = append(list, target)
			}
		}
		isRow := p["type"] == "row"
		if !isRow && list == nil {
			continue
		}
		if isRow && len(kept) > 0 && kept[len(kept)-1].(map[string]any)["type"] == "row" {
			kept = kept[:len(kept)-1]
		}
		if !isRow {
			p["targets"] = list
		}
		kept = append(kept, p)
	}
	if kept[len(kept)-1].(map[string]any)["type"] == "row" {
		kept = kept[:len(kept)-1]
	}
	b["panels"] = kept
	return b.laidOut(t)
}

// rulesForStock makes the rules for stock's metrics.
func rulesForStock(text string, renamed func(string) (string, bool)) string {
	blocks := strings.Split(text, "      - alert: ")
	head := blocks[0]
	out := head[:strings.Index(head, "# Alert rules")] +
		"# Alert rules for the metrics of google.golang.org/grpc/xds, made from prometheus.yml by the test.\n" + head[strings.Index(head, "groups:"):]
	for _, b := range blocks[1:] {
		if b, ok := renamed(b); ok {
			out += "      - alert: " + b
		}
	}
	return out
}

// stockNames returns a function that replaces the names of series in a text by stock's, and reports
// whether stock has all of them.
func stockNames(t *testing.T, list []instrument) func(text string) (string, bool) {
	t.Helper()
	names := map[string]string{} // of series
	for _, i := range list {
		ours := slices.Sorted(maps.Keys(exported(t, i)))
		stock := make([]string, len(ours))
		if i.stock != "" {
			i.name = i.stock
			stock = slices.Sorted(maps.Keys(exported(t, i)))
		}
		for k := range ours {
			names[ours[k]] = stock[k]
		}
	}
	series := regexp.MustCompile(`\bxdslb_(?:xds_client|lb|client)_\w+`)
	return func(text string) (string, bool) {
		all := true
		text = series.ReplaceAllStringFunc(text, func(name string) string {
			all = all && names[name] != ""
			return names[name]
		})
		return text, all
	}
}

// TestDashboards: the queries of the dashboards read metrics and labels that exist, the dashboard has
// all metrics of METRICS.md, and the one for stock's names is up to date.
func TestDashboards(t *testing.T) {
	list := instruments(t)
	want := parsed(t, read(t, dashboard)).laidOut(t)
	stock := forStock(t, parsed(t, want), stockNames(t, list))
	compare(t, dashboard, want)
	compare(t, stockDashboard, stock)
	series, used := exported(t, append(ofGRPC, list...)...), map[string]bool{}
	for _, p := range parsed(t, want).panels() {
		for _, target := range targets(p) {
			for _, fault := range check(target["expr"].(string), series, used) {
				t.Errorf("panel %q: %s: %s", p["title"], target["expr"], fault)
			}
			for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target["legendFormat"].(string), -1) {
				if !strings.Contains(target["expr"].(string), m[1]) {
					t.Errorf("panel %q: the legend has label %s, and the query does not", p["title"], m[1])
				}
			}
		}
		if p["type"] != "row" && (p["description"] == "" || len(targets(p)) == 0) {
			t.Errorf("panel %q has no description or no queries", p["title"])
		}
	}
	for _, i := range list {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(exported(t, i))), func(name string) bool { return used[name] }) {
			t.Errorf("no panel shows %s", i.name)
		}
	}
	checkStock(t, stock, list)
}

// stockInstruments returns the metrics that stock has, with stock's names.
func stockInstruments(list []instrument) (stock []instrument) {
	for _, i := range list {
		if i.stock != "" {
			i.name = i.stock
			stock = append(stock, i)
		}
	}
	return stock
}

// checkStock verifies queries of the dashboard for stock's metrics.
func checkStock(t *testing.T, text string, list []instrument) {
	t.Helper()
	series := exported(t, append(ofGRPC, stockInstruments(list)...)...)
	for _, p := range parsed(t, text).panels() {
		for _, target := range targets(p) {
			for _, fault := range check(target["expr"].(string), series, map[string]bool{}) {
				t.Errorf("stock's panel %q: %s", p["title"], fault)
			}
		}
	}
}

// TestRules: Prometheus accepts the rules, their queries read metrics and labels that exist, each
// condition of METRICS.md has a rule, and the rules for stock's names are up to date.
func TestRules(t *testing.T) {
	list := instruments(t)
	stock := rulesForStock(read(t, rules), stockNames(t, list))
	compare(t, stockRules, stock)
	series, used := exported(t, append(ofGRPC, list...)...), map[string]bool{}
	for _, rule := range accepted(t, rules) {
		for _, fault := range check(rule.Expr, series, used) {
			t.Errorf("rule %s: %s", rule.Alert, fault)
		}
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("rule %s has no severity, summary or description", rule.Alert)
		}
	}
	stockSeries := exported(t, stockInstruments(list)...)
	for _, rule := range accepted(t, stockRules) {
		for _, fault := range check(rule.Expr, stockSeries, map[string]bool{}) {
			t.Errorf("stock's rule %s: %s", rule.Alert, fault)
		}
	}
	_, conditions, _ := strings.Cut(read(t, "../METRICS.md"), "\n## What to watch\n")
	conditions, _, _ = strings.Cut(conditions, "\n## ")
	for _, m := range regexp.MustCompile("(?m)^\\| `(xdslb\\.[a-z._]+)`").FindAllStringSubmatch(conditions, -1) {
		name := strings.ReplaceAll(m[1], ".", "_")
		if !slices.ContainsFunc(slices.Collect(maps.Keys(used)), func(s string) bool { return strings.HasPrefix(s, name) }) {
			t.Errorf("no rule has the condition of %s", m[1])
		}
	}
}

// accepted returns the rules of a file.
func accepted(t *testing.T, file string) (list []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.Parse([]byte(read(t, file)), false, model.LegacyValidation, promql, promslog.NewNopLogger())
	for _, err := range errs {
		t.Errorf("%s: %v", file, err)
	}
	if groups != nil {
		for _, g := range groups.Groups {
			list = append(list, g.Rules...)
		}
	}
	return list
}

// TestFaults: the check finds names and labels that do not exist.
func TestFaults(t *testing.T) {
	series := exported(t, instruments(t)...)
	for query, want := range map[string]string{
		"sum by (grpc_target) (rate(xdslb_lb_picks[5m]))":            "no series xdslb_lb_picks",
		"sum by (zone) (rate(xdslb_lb_picks_total[5m]))":             "no series has label zone",
		`rate(xdslb_lb_picks_total{grpc_target="a"}[5m])`:            "xdslb_lb_picks_total has no label grpc_target",
		"rate(xdslb_lb_picks_total)":                                 "expected type range vector",
		"xdslb_lb_priority - on (pod) xdslb_lb_priority":             "no series has label pod",
		`sum by (grpc_lb_locality) (rate(xdslb_lb_picks_total[5m]))`: "",
	} {
		faults := strings.Join(check(query, series, map[string]bool{}), "; ")
		if !strings.Contains(faults, want) || want == "" && faults != "" {
			t.Errorf("%s: %q, want %q", query, faults, want)
		}
	}
}

// compare verifies the content of a file.
func compare(t *testing.T, file, want string) {
	t.Helper()
	if *write {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, file) != want {
		t.Errorf("%s is not up to date: go test -C integrate/dashboards -update", file)
	}
}
