// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package stock checks the metrics under the names of google.golang.org/grpc/xds, for tests of
// programs that link that package and of programs that do not.
package stock

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// want has the metrics with their units and labels, the optional ones in brackets (A78,
// A91).
var want = map[string]string{
	"grpc.xds_client.connected":                      "{connected} grpc.target grpc.xds.server",
	"grpc.xds_client.resources":                      "{resource} grpc.target grpc.xds.authority grpc.xds.cache_state grpc.xds.resource_type",
	"grpc.xds_client.server_failure":                 "{failure} grpc.target grpc.xds.server",
	"grpc.xds_client.resource_updates_valid":         "{resource} grpc.target grpc.xds.server grpc.xds.resource_type",
	"grpc.xds_client.resource_updates_invalid":       "{resource} grpc.target grpc.xds.server grpc.xds.resource_type",
	"grpc.lb.wrr.rr_fallback":                        "{update} grpc.target [grpc.lb.locality] [grpc.lb.backend_service]",
	"grpc.lb.wrr.endpoint_weight_not_yet_usable":     "{endpoint} grpc.target [grpc.lb.locality] [grpc.lb.backend_service]",
	"grpc.lb.wrr.endpoint_weight_stale":              "{endpoint} grpc.target [grpc.lb.locality] [grpc.lb.backend_service]",
	"grpc.lb.wrr.endpoint_weights":                   "{endpoint} grpc.target [grpc.lb.locality] [grpc.lb.backend_service]",
	"grpc.lb.outlier_detection.ejections_enforced":   "{ejection} grpc.target grpc.lb.outlier_detection.detection_method",
	"grpc.lb.outlier_detection.ejections_unenforced": "{ejection} grpc.target grpc.lb.outlier_detection.detection_method grpc.lb.outlier_detection.unenforced_reason",
}

// Check reads the metrics of a channel under grpc-go's names, and compares the metrics
// registered with gRPC with the expected ones.
func Check(t *testing.T, names *stats.MetricSet) {
	if got, all := slices.Sorted(maps.Keys(names.Metrics())), slices.Sorted(maps.Keys(want)); !slices.Equal(got, all) {
		t.Errorf("names are\n%v\nwant\n%v", got, all)
	}
	for name, want := range want {
		d := estats.DescriptorForMetric(name)
		if d == nil {
			t.Errorf("%s is not registered", name)
			continue
		}
		got := strings.Join(append([]string{d.Unit}, d.Labels...), " ")
		for _, label := range d.OptionalLabels {
			got += " [" + label + "]"
		}
		if got != want || d.Default {
			t.Errorf("%s: %s, on by default: %v; want %s", name, got, d.Default, want)
		}
	}
	read(t, names)
}

// read makes an RPC and waits for its metrics.
func read(t *testing.T, names *stats.MetricSet) {
	const target = "stock.example"
	control := xdstest.New(t, xdstest.Options{})
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	if err := control.Set(xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})); err != nil {
		t.Fatal(err)
	}
	opts, err := integrate.DialOptions(integrate.Config{Bootstrap: control.Bootstrap("node"), Linger: -1})
	if err != nil {
		t.Fatal(err)
	}
	reader := sdk.NewManualReader()
	record := opentelemetry.DialOption(opentelemetry.Options{MetricsOptions: opentelemetry.MetricsOptions{
		MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader)), Metrics: names,
	}})
	cc, err := grpc.NewClient("xds:///"+target, append(opts, record, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"grpc.xds_client.connected": 1, "grpc.xds_client.resource_updates_valid": 4, "grpc.xds_client.resources": 4} {
		if got := sum(t, reader, name, "xds:///"+target); got != want {
			t.Errorf("%s = %d, want %d", name, got, want)
		}
	}
}

// sum returns the sum of a metric's points for a target.
func sum(t *testing.T, reader sdk.Reader, name, target string) (sum int64) {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	add := func(points []metricdata.DataPoint[int64]) {
		for _, p := range points {
			if v, _ := p.Attributes.Value(attribute.Key("grpc.target")); v.AsString() == target {
				sum += p.Value
			}
		}
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if d, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
				add(d.DataPoints)
			}
			if d, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == name {
				add(d.DataPoints)
			}
		}
	}
	return sum
}
