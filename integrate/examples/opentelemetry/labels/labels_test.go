// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package labels tests package attemptlabels with gRPC's OpenTelemetry plugin.
package labels

import (
	"context"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	_ "github.com/xdslb/xdslb/integrate/attemptlabels"
	"github.com/xdslb/xdslb/xds/xdstest"
)

const target = "labels.example"

// TestLabels checks that attempts are labeled with the locality and the cluster of their
// endpoint, with every policy.
func TestLabels(t *testing.T) {
	for _, tt := range []struct {
		name   string
		option testplane.ClusterOption
	}{
		{"in sequence", func(*clusterv3.Cluster) {}},
		{"by hash", testplane.RingHash(8, 8)},
		{"by a custom policy", testplane.Policies(testplane.WrrLocality(testplane.TypedStruct("round_robin", nil)))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			control := xdstest.New(t, xdstest.Options{})
			backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
			r := xdstest.Service(target)
			r.Clusters[0] = xdstest.Cluster(target, target, tt.option)
			r.Endpoints[0] = xdstest.Endpoints(target,
				xdstest.Locality{Place: xdstest.Place{Zone: "a"}, Endpoints: xdstest.BackendEndpoints(backends[0])},
				xdstest.Locality{Place: xdstest.Place{Zone: "b"}, Endpoints: xdstest.BackendEndpoints(backends[1])})
			if err := control.Set(r); err != nil {
				t.Fatal(err)
			}
			reader := sdk.NewManualReader()
			c := dial(t, control, reader)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			for range 20 {
				if _, err := c.EmptyCall(ctx, &testgrpc.Empty{}); err != nil {
					t.Fatal(err)
				}
			}
			got := attempts(t, reader)
			for i, zone := range []string{"a", "b"} {
				if n := got[`{region="", zone="`+zone+`", sub_zone=""} `+target]; n != backends[i].Calls() {
					t.Errorf("%d attempts have the labels of zone %s, want %d; all are %v", n, zone, backends[i].Calls(), got)
				}
			}
		})
	}
}

func dial(t *testing.T, control *xdstest.Server, reader sdk.Reader) testgrpc.TestServiceClient {
	t.Helper()
	opts, err := integrate.DialOptions(integrate.Config{Bootstrap: control.Bootstrap("node"), Linger: -1})
	if err != nil {
		t.Fatal(err)
	}
	record := opentelemetry.DialOption(opentelemetry.Options{MetricsOptions: opentelemetry.MetricsOptions{
		MeterProvider:  sdk.NewMeterProvider(sdk.WithReader(reader)),
		OptionalLabels: []string{"grpc.lb.locality", "grpc.lb.backend_service"},
	}})
	cc, err := grpc.NewClient("xds:///"+target, append(opts, record, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return testgrpc.NewTestServiceClient(cc)
}

// attempts returns how many attempts have which labels.
func attempts(t *testing.T, reader sdk.Reader) map[string]uint64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != "grpc.client.attempt.duration" {
				continue
			}
			for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
				label := func(key string) string {
					v, _ := p.Attributes.Value(attribute.Key(key))
					return v.AsString()
				}
				got[label("grpc.lb.locality")+" "+label("grpc.lb.backend_service")] += p.Count
			}
		}
	}
	return got
}
