// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package opentelemetry

import (
	"fmt"
	"net/http/httptest"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// scrape reads the page as Prometheus does.
func scrape(t *testing.T, w *world, options ...sdk.Option) func() map[string]*dto.MetricFamily {
	provider, page, err := Prometheus(options...)
	if err != nil {
		t.Fatal(err)
	}
	w.provider = provider
	return func() map[string]*dto.MetricFamily {
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		text := answer.Body.String()
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(answer.Body)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		return families
	}
}

// TestPrometheus checks that Prometheus' own parser accepts the page of OpenTelemetry's
// exporter, with a cluster's name that would end a label.
func TestPrometheus(t *testing.T) {
	const cluster = "a\"} 1\n\\#"
	w := newWorld(t, 1)
	read := scrape(t, w)
	r := xdstest.Service(service)
	r.Routes[0] = xdstest.RouteConfig(service, xdstest.Route("", cluster))
	r.Clusters[0] = xdstest.Cluster(cluster, service)
	r.Endpoints[0] = xdstest.Endpoints(service, w.locality("a", 0, w.backends...))
	w.serve(r)
	c := w.dial()
	for range 3 {
		if err := w.call(c); err != nil {
			t.Fatal(err)
		}
	}
	families := read()
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
	next:
		for _, m := range families[name].GetMetric() {
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

// TestCardinality: the SDK limits the series of a metric whose labels a control plane
// chooses, and loses no count.
func TestCardinality(t *testing.T) {
	const limit, clusters = 10, 20
	w := newWorld(t, 1)
	read := scrape(t, w, sdk.WithCardinalityLimit(limit))
	r := xdstest.Service(service, w.locality("a", 0, w.backends...))
	var routes []*routev3.Route
	r.Clusters = nil
	for i := range clusters {
		name := fmt.Sprint("made-up-", i)
		route := xdstest.Route("", name)
		route.Match.Headers = []*routev3.HeaderMatcher{{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}}
		routes = append(routes, route)
		r.Clusters = append(r.Clusters, xdstest.Cluster(name, service))
	}
	r.Routes[0] = xdstest.RouteConfig(service, routes...)
	w.serve(r)
	c := w.dial()
	for i := range clusters {
		ctx := metadata.AppendToOutgoingContext(t.Context(), fmt.Sprint("made-up-", i), "")
		if _, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	picks := 0.
	family := read()["xdslb_lb_picks_total"]
	for _, m := range family.GetMetric() {
		picks += m.GetCounter().GetValue()
	}
	if n := len(family.GetMetric()); n != limit || picks != clusters {
		t.Errorf("%d series with %v picks, want %d with %d", n, picks, limit, clusters)
	}
}
