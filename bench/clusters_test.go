// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xdslb/xdslb/bench/fakegrpc"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// meter counts the bytes of a control plane's connections.
type meter struct{ up, down atomic.Int64 }

func (m *meter) listen(addr string) (net.Listener, error) {
	lis, err := net.Listen("tcp", addr)
	return meteredListener{lis, m}, err
}

type meteredListener struct {
	net.Listener
	m *meter
}

func (l meteredListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return meteredConn{c, l.m}, err
}

type meteredConn struct {
	net.Conn
	m *meter
}

func (c meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.m.up.Add(int64(n))
	return n, err
}

func (c meteredConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.m.down.Add(int64(n))
	return n, err
}

// manyClusters is a target whose routes lead to n clusters of 1.3 KB, each with one
// endpoint. All clusters are of revision 0, but for the first.
func manyClusters(n int, revision uint32) xdstest.Resources {
	var r xdstest.Resources
	config := xdstest.RouteConfig(service)
	for i := range n {
		name := fmt.Sprintf("cluster-%d", i)
		c := xdstest.Cluster(name, name, testplane.MaxRequests(1000))
		if i == 0 {
			c = xdstest.Cluster(name, name, testplane.MaxRequests(1000+revision))
		}
		c.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"istio": {Fields: map[string]*structpb.Value{
			"services": structpb.NewStringValue(strings.Repeat("x", 1200)),
		}}}}
		r.Clusters = append(r.Clusters, c)
		r.Endpoints = append(r.Endpoints, xdstest.Endpoints(name, xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: endpointAddr(i)}}}))
		config.VirtualHosts[0].Routes = append(config.VirtualHosts[0].Routes, xdstest.Route(fmt.Sprintf("/package.Service%d/", i), name))
	}
	r.Listeners = append(r.Listeners, xdstest.Listener(service, service))
	r.Routes = append(r.Routes, config)
	return r
}

// BenchmarkClusterUpdate measures a change of one of n clusters of a target, from the control
// plane's Update to the client's ACK: bytes in both directions on the wire, and processor time
// of the process, including the control plane's; impl=ours_delta uses incremental ADS, which
// stock does not have. The client's share alone, to the microsecond, is measured in package
// xds: BenchmarkClusterChange.
//
// BenchmarkClusterReconnect measures the replacement of a stream without changes.
func BenchmarkClusterUpdate(b *testing.B)    { benchmarkClusters(b, updateClusters) }
func BenchmarkClusterReconnect(b *testing.B) { benchmarkClusters(b, reconnectClusters) }

type clusterWorld struct {
	control *xdstest.Server
	channel *fakegrpc.Channel
	meter   *meter
	n       int
}

func benchmarkClusters(b *testing.B, measure func(*testing.B, context.Context, *clusterWorld)) {
	for _, n := range sizes(1000, 9000) {
		for _, impl := range []string{"stock", "ours", "ours_delta"} {
			if impl == "stock" && (testing.Short() || n > 1000) {
				continue // with 9000 it was not up in five minutes
			}
			world := sync.OnceValue(func() *clusterWorld { return startClusters(b, impl, n) })
			b.Run(fmt.Sprintf("impl=%s/n=%d", impl, n), func(b *testing.B) {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
				defer cancel()
				w := world()
				settle(w.channel)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				up, down, cpu := w.meter.up.Load(), w.meter.down.Load(), cpuTime()
				b.ResetTimer()
				measure(b, ctx, w)
				b.StopTimer()
				settle(w.channel)
				runtime.ReadMemStats(&after)
				per := func(x int64) float64 { return float64(x) / float64(b.N) }
				b.ReportMetric(per(w.meter.up.Load()-up), "up-B/op")
				b.ReportMetric(per(w.meter.down.Load()-down), "down-B/op")
				b.ReportMetric(per(cpuTime()-cpu)/1e3, "cpu-µs/op")
				b.ReportMetric(per(int64(after.TotalAlloc-before.TotalAlloc))/1024, "KiB/op")
			})
		}
	}
}

func startClusters(b *testing.B, impl string, n int) *clusterWorld {
	w := &clusterWorld{meter: &meter{}, n: n}
	w.control = xdstest.New(b, xdstest.Options{Listen: w.meter.listen})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	w.channel = fakegrpc.New(nil)
	b.Cleanup(w.channel.Close)
	builder := newBuilder(b, impl, w.control)
	if impl != "stock" {
		builder = must(b, func() (resolver.Builder, error) {
			return integrate.NewBuilder(integrate.Config{
				Bootstrap: w.control.Bootstrap(b.Name() + impl), Linger: -1, ReconnectSpread: -1, Delta: impl == "ours_delta",
				Logger: slog.New(slog.DiscardHandler), // broken streams are the subject of the benchmark
			})
		})
	}
	err := w.control.Set(manyClusters(n, 0))
	if err == nil {
		err = w.channel.Resolve(builder, "xds:///"+service)
	}
	if err == nil {
		err = w.control.WaitACK(ctx, xdstest.EDS)
	}
	if err != nil {
		b.Fatal(err)
	}
	return w
}

func updateClusters(b *testing.B, ctx context.Context, w *clusterWorld) {
	for range b.N {
		revision++
		one := manyClusters(1, revision)
		err := w.control.Update(xdstest.Resources{Clusters: []*clusterv3.Cluster{one.Clusters[0]}})
		if err == nil {
			err = w.control.WaitACK(ctx, xdstest.CDS)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func reconnectClusters(b *testing.B, ctx context.Context, w *clusterWorld) {
	for range b.N {
		_, streams := w.control.Streams()
		w.control.BreakStreams()
		err := w.control.Wait(ctx, func() bool {
			open, total := w.control.Streams()
			return open == 1 && total > streams && len(w.control.Stats(xdstest.EDS).Names) == w.n
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
