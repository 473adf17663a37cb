// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package opentelemetry

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/xdslb/xdslb/integrate/prometheus"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestPrometheus: Prometheus's own parser reads the page, and finds there what
// OpenTelemetry has, under a cluster's name that would end a label.
func TestPrometheus(t *testing.T) {
	const cluster = "a\"} 1\n\\#"
	w := newWorld(t, 1)
	r := xdstest.Service(service)
	r.Routes[0] = xdstest.RouteConfig(service, xdstest.Route("", cluster))
	r.Clusters[0] = xdstest.Cluster(cluster, service)
	r.Endpoints[0] = xdstest.Endpoints(service, w.locality("a", 0, w.backends...))
	w.serve(r)
	handler := prometheus.Handler()
	c := w.dial()
	for range 3 {
		if err := w.call(c); err != nil {
			t.Fatal(err)
		}
	}
	page := httptest.NewRecorder()
	handler.ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page.Body.String()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, page.Body)
	}
	labels := map[string]string{"grpc_target": target, "grpc_lb_backend_service": cluster, "grpc_lb_locality": zone("a"), "xdslb_state": "ready"}
	for name, want := range map[string]float64{
		"xdslb_lb_picks_total":                           3,
		"xdslb_lb_endpoints":                             1,
		"xdslb_xds_client_resource_updates_valid_total":  4,
		"xdslb_lb_publication_duration_seconds":          1,
		"xdslb_xds_client_configuration_latency_seconds": 1,
		"xdslb_xds_client_received_size_bytes_total":     1,
		"xdslb_client_channels":                          1,
	} {
		got := 0.
		family := families[name]
		if family == nil {
			t.Errorf("there is no %s in\n%s", name, page.Body)
			continue
		}
	next:
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if v, ok := labels[l.GetName()]; ok && v != l.GetValue() {
					continue next
				}
			}
			got += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		if got < want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}
