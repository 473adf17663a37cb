// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package opentelemetry

import (
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestXdsClient checks the metrics of resources received from the control plane, ages and
// states of resources, and the delay of a configuration, for a channel of a target.
func TestXdsClient(t *testing.T) {
	w := newWorld(t, 1)
	r := xdstest.Service(service, w.locality("a", 0, w.backends...))
	w.serve(r)
	begin := time.Now()
	if err := w.call(w.dial()); err != nil {
		t.Fatal(err)
	}
	aged := func(least float64) func(float64) bool {
		return func(got float64) bool { return got >= least && got <= time.Since(begin).Seconds() }
	}
	server := []string{"grpc.xds.server", w.control.Addr()}
	ofTarget := append([]string{"grpc.target", target}, server...)
	for _, typ := range []string{"ListenerResource", "RouteConfigResource", "ClusterResource", "EndpointsResource"} {
		resource := []string{"grpc.xds.resource_type", typ}
		w.await("xdslb.xds_client.resource_updates_valid", is(1), append(ofTarget, resource...)...)
		w.await("xdslb.xds_client.messages", is(1), append(server, resource...)...)
		w.await("xdslb.xds_client.received_size", atLeast(20), append(server, resource...)...)
		w.await("xdslb.xds_client.requests", is(2), append(server, resource...)...)
		w.await("xdslb.xds_client.resource_age", aged(0), append(resource, "xdslb.resource_name", service)...)
		w.await("xdslb.xds_client.resources", is(1), append(resource, "grpc.target", target, "grpc.xds.authority", "#old", "grpc.xds.cache_state", "acked")...)
	}
	w.await("xdslb.xds_client.connected", is(1), ofTarget...)
	w.await("xdslb.xds_client.streams", is(1), server...)
	w.await("xdslb.xds_client.configuration_latency", is(1), "grpc.target", target)
	w.await("xdslb.lb.publication_duration", atLeast(1), "grpc.target", target)

	w.await("xdslb.xds_client.resource_age", aged(1), "grpc.xds.resource_type", "ClusterResource")
	bad := xdstest.Cluster(service, service)
	bad.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	r.Clusters = []*clusterv3.Cluster{bad}
	w.serve(r)
	cluster := []string{"grpc.xds.resource_type", "ClusterResource"}
	w.await("xdslb.xds_client.nacks", is(1), append(cluster, server...)...)
	w.await("xdslb.xds_client.resource_updates_invalid", is(1), append(cluster, ofTarget...)...)
	w.await("xdslb.xds_client.resources", is(1), append(cluster, "grpc.xds.cache_state", "nacked_but_cached")...)

	w.control.Stop()
	w.await("xdslb.xds_client.connected", is(0), ofTarget...)
	w.await("xdslb.xds_client.server_failure", is(1), ofTarget...)
}

// TestConfigurationLatency: a new configuration is measured once, and one that was there
// before the channel is not.
func TestConfigurationLatency(t *testing.T) {
	w := newWorld(t, 2)
	w.serve(xdstest.Service(service, w.locality("a", 0, w.backends[0])))
	first := w.dial()
	if err := w.call(first); err != nil {
		t.Fatal(err)
	}
	w.await("xdslb.xds_client.configuration_latency", atLeast(1))
	before, _ := w.read("xdslb.xds_client.configuration_latency")
	if err := w.call(w.dial()); err != nil { // with the resources that are there
		t.Fatal(err)
	}
	if got, _ := w.read("xdslb.xds_client.configuration_latency"); got != before {
		t.Errorf("%v configurations were measured after a second channel came, want %v", got, before)
	}
	w.serve(xdstest.Service(service, w.locality("a", 0, w.backends...)))
	w.await("xdslb.xds_client.configuration_latency", is(before+2)) // one per channel

	published, _ := w.read("xdslb.lb.publication_duration")
	w.backends[1].Stop()
	w.await("xdslb.lb.publication_duration", atLeast(published+2))
	if got, _ := w.read("xdslb.xds_client.configuration_latency"); got != before+2 {
		t.Errorf("%v configurations were measured after publications of the same ones, want %v", got, before+2)
	}
}

// TestView checks that a View exports the metrics that stock also has under stock's names, with
// the same labels and units.
func TestView(t *testing.T) {
	w := newWorld(t, 1, StockNames)
	w.serve(xdstest.Service(service, w.locality("a", 0, w.backends...)))
	if err := w.call(w.dial()); err != nil {
		t.Fatal(err)
	}
	w.await("grpc.xds_client.connected", is(1), "grpc.target", target, "grpc.xds.server", w.control.Addr())
	w.await("grpc.xds_client.resource_updates_valid", is(4), "grpc.target", target)
	if p := w.points("grpc.xds_client.resource_updates_valid"); p[0].unit != "{resource}" {
		t.Errorf("the unit is %q, want {resource}", p[0].unit)
	}
	if p := w.points("xdslb.xds_client.connected"); len(p) > 0 {
		t.Errorf("there is also %v under the name xdslb.xds_client.connected", p)
	}
	w.await("xdslb.lb.picks", is(1)) // which stock does not have
}

// TestNames: all metrics are of this module's namespace (A79).
func TestNames(t *testing.T) {
	for name := range integrate.Metrics().Metrics() {
		if !strings.HasPrefix(name, "xdslb.") {
			t.Errorf("metric %s", name)
		}
		if stock := integrate.StockMetricName(name); stock != "" && stock != "grpc."+strings.TrimPrefix(name, "xdslb.") {
			t.Errorf("metric %s is %s in stock", name, stock)
		}
	}
	if integrate.StockMetricName("xdslb.lb.picks") != "" || integrate.StockMetricName("x") != "" {
		t.Error("StockMetricName returns a name of a metric that stock does not have")
	}
}

// TestChannelsOfOneTarget: channels with the same target are one series each (gRPC's
// AsyncMetricReporter forbids two), which the next channel goes on with when one closes.
func TestChannelsOfOneTarget(t *testing.T) {
	w := newWorld(t, 1)
	w.serve(xdstest.Service(service, w.locality("a", 0, w.backends...)))
	ours, err := integrate.DialOptions(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	closing, stop := w.dialWith(ours...)
	rest := w.dial()
	for _, c := range []testgrpc.TestServiceClient{closing, rest} {
		if err := w.call(c); err != nil {
			t.Fatal(err)
		}
	}
	ready := []string{"grpc.target", target, "grpc.lb.backend_service", service, "xdslb.state", "ready"}
	w.await("xdslb.client.channels", is(2), "grpc.target", target)
	w.await("xdslb.lb.endpoints", is(2), ready...)
	w.await("xdslb.xds_client.connected", is(1))
	w.await("xdslb.lb.picks", is(2))
	stop()
	w.await("xdslb.client.channels", is(1), "grpc.target", target)
	w.await("xdslb.lb.endpoints", is(1), ready...)
	w.await("xdslb.xds_client.connected", is(1))
	if err := w.call(rest); err != nil {
		t.Fatal(err)
	}
	w.await("xdslb.lb.picks", is(3))
	if p := w.points("xdslb.xds_client.connected"); len(p) != 1 {
		t.Errorf("connected has %d points, want 1", len(p))
	}
}
