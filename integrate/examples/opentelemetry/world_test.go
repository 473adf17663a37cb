// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package opentelemetry

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// target is the label grpc.target of the tests' channels, and service the name they dial.
const (
	service = "metrics.example"
	target  = "xds:///" + service
)

// ofStock are the metrics of channels of stock; bench/rollout has their tests.
var ofStock = map[string]bool{"xdslb.client.channels_handed_over": true, "xdslb.client.channels_not_handed_over": true}

// TestMain fails if there is a metric that no test has read a value of.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 && flag.Lookup("test.run").Value.String() == "" {
		for _, name := range slices.Sorted(maps.Keys(integrate.Metrics().Metrics())) {
			if !seen.has(name) && !ofStock[name] {
				fmt.Printf("no test reads metric %s\n", name)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// seen has the names of the metrics that tests have read.
var seen names

type names struct {
	mu sync.Mutex
	m  map[string]bool
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.m == nil {
		n.m = map[string]bool{}
	}
	n.m[name] = true
}

func (n *names) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.m[name]
}

// world is a control plane, backends, and the OpenTelemetry metrics of a channel.
type world struct {
	testing.TB
	control  *xdstest.Server
	backends []*xdstest.Backend
	cfg      integrate.Config
	reader   *sdk.ManualReader
	provider *sdk.MeterProvider
}

// newWorld makes a world without resources.
func newWorld(t testing.TB, backends int, views ...sdk.View) *world {
	w := &world{TB: t, control: xdstest.New(t, xdstest.Options{}), reader: sdk.NewManualReader()}
	w.backends = xdstest.NewBackends(t, backends, xdstest.BackendOptions{})
	w.cfg = integrate.Config{Bootstrap: w.control.Bootstrap("node"), Linger: -1, ReconnectSpread: -1}
	w.provider = sdk.NewMeterProvider(sdk.WithReader(w.reader), sdk.WithView(views...))
	return w
}

func (w *world) serve(r xdstest.Resources) {
	w.Helper()
	if err := w.control.Set(r); err != nil {
		w.Fatal(err)
	}
}

// dial returns a channel whose metrics are recorded.
func (w *world) dial(opts ...grpc.DialOption) testgrpc.TestServiceClient {
	w.Helper()
	ours, err := integrate.DialOptions(w.cfg)
	if err != nil {
		w.Fatal(err)
	}
	c, _ := w.dialWith(append(ours, opts...)...)
	return c
}

// dialWith is dial without the options of this module.
func (w *world) dialWith(opts ...grpc.DialOption) (c testgrpc.TestServiceClient, stop func()) {
	w.Helper()
	cc, err := grpc.NewClient(target, append(opts, DialOption(w.provider), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		w.Fatal(err)
	}
	stop = func() { _ = cc.Close() }
	w.Cleanup(stop)
	cc.Connect()
	return testgrpc.NewTestServiceClient(cc), stop
}

// call makes an RPC.
func (w *world) call(c testgrpc.TestServiceClient) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{})
	return err
}

// point is a value with its labels: of a histogram, how many values it has.
type point struct {
	labels attribute.Set
	value  float64
	unit   string
}

// points reads a metric.
func (w *world) points(name string) (points []point) {
	w.Helper()
	var all metricdata.ResourceMetrics
	if err := w.reader.Collect(context.Background(), &all); err != nil {
		w.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					points = append(points, point{p.Attributes, float64(p.Value), m.Unit})
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					points = append(points, point{p.Attributes, float64(p.Value), m.Unit})
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					points = append(points, point{p.Attributes, float64(p.Count), m.Unit})
				}
			default:
				w.Fatalf("metric %s is a %T", name, m.Data)
			}
		}
	}
	return points
}

// read returns the sum of a metric's points that have the labels, given as key, value.
func (w *world) read(name string, labels ...string) (sum float64, found bool) {
	w.Helper()
next:
	for _, p := range w.points(name) {
		for i := 0; i < len(labels); i += 2 {
			if v, ok := p.labels.Value(attribute.Key(labels[i])); !ok || v.AsString() != labels[i+1] {
				continue next
			}
		}
		sum, found = sum+p.value, true
	}
	if found {
		seen.add(name)
	}
	return sum, found
}

// await waits until a metric has a value. It polls: readers of OpenTelemetry are not notified
// of changes, and connections use the real network.
func (w *world) await(name string, want func(float64) bool, labels ...string) {
	w.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got, found := w.read(name, labels...)
		if found && want(got) {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("metric %s with labels %q = %v (found: %v); there are %v", name, labels, got, found, w.points(name))
		}
	}
}

// is wants a value.
func is(want float64) func(float64) bool { return func(got float64) bool { return got == want } }

// atLeast wants a value or a greater one.
func atLeast(want float64) func(float64) bool { return func(got float64) bool { return got >= want } }

// locality returns a locality of a priority with some of the backends.
func (w *world) locality(zone string, priority uint32, backends ...*xdstest.Backend) xdstest.Locality {
	return xdstest.Locality{Place: xdstest.Place{Zone: zone}, Priority: priority, Endpoints: xdstest.BackendEndpoints(backends...)}
}
