// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/experimental/stats"

	"github.com/xdslb/xdslb/integrate/internal/metric"
)

// TestWrite is the text format, with labels that a hostile control plane chose.
func TestWrite(t *testing.T) {
	families := []metric.Family{
		{
			Metric: &metric.Metric{Kind: metric.Count, MetricDescriptor: stats.MetricDescriptor{
				Name: "xdslb.a", Unit: "{call}", Description: "One \\ two\nthree.", Labels: []string{"grpc.target"}, OptionalLabels: []string{"grpc.lb.locality"},
			}},
			Samples: []metric.Sample{
				{Labels: metric.Labels{"x\"} 1\n# TYPE evil counter", `{zone="\a"}`}, Value: 3},
				{Labels: metric.Labels{"not \xff UTF-8", ""}, Value: 1 << 60},
			},
		},
		{
			Metric:  &metric.Metric{Kind: metric.Gauge, MetricDescriptor: stats.MetricDescriptor{Name: "xdslb.b", Unit: "By", Description: "B."}},
			Samples: []metric.Sample{{Value: -1}},
		},
		{
			Metric:  &metric.Metric{Kind: metric.Histogram, MetricDescriptor: stats.MetricDescriptor{Name: "xdslb.c", Unit: "s", Description: "C.", Labels: []string{"a.l"}}},
			Bounds:  []float64{1e-5, 2.5},
			Samples: []metric.Sample{{Labels: metric.Labels{"v"}, Buckets: []uint64{1, 2, 3}, Sum: 1.5}},
		},
	}
	const want = `# HELP xdslb_a_total One \\ two\nthree.
# TYPE xdslb_a_total counter
xdslb_a_total{grpc_target="x\"} 1\n# TYPE evil counter",grpc_lb_locality="{zone=\"\\a\"}"} 3
xdslb_a_total{grpc_target="not ` + "\uFFFD" + ` UTF-8",grpc_lb_locality=""} 1152921504606846976
# HELP xdslb_b_bytes B.
# TYPE xdslb_b_bytes gauge
xdslb_b_bytes -1
# HELP xdslb_c_seconds C.
# TYPE xdslb_c_seconds histogram
xdslb_c_seconds_bucket{a_l="v",le="1e-05"} 1
xdslb_c_seconds_bucket{a_l="v",le="2.5"} 3
xdslb_c_seconds_bucket{a_l="v",le="+Inf"} 6
xdslb_c_seconds_sum{a_l="v"} 1.5
xdslb_c_seconds_count{a_l="v"} 6
`
	var got strings.Builder
	if err := write(&got, families); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("the text is\n%s\nwant\n%s", got.String(), want)
	}
	if got := families[2].Labels[0]; got != "a.l" {
		t.Errorf("the metric's own label has become %q", got)
	}
}

// TestHandler: the page says what it is.
func TestHandler(t *testing.T) {
	rec := httptest.NewRecorder()
	Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if got := rec.Header().Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("Content-Type is %q", got)
	}
	if !metric.Watched() {
		t.Error("nobody watches after a handler was made")
	}
}
