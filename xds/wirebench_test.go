// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/cputime"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/internal/adscodec"
	"github.com/xdslb/xdslb/xds/resource"
)

// wireServer is the variable of the environment that has the test binary be the control
// plane of BenchmarkWireClusterChange: a process of its own, so that its processor time
// is not the client's.
const wireServer = "XDSLB_WIRE_SERVER"

const wireClusters = 4000

// serveWire prints its address, and serves until its standard input ends.
func serveWire() {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	srv := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(srv, newWirePlane())
	go func() { _ = srv.Serve(lis) }()
	fmt.Println(lis.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	srv.Stop()
}

// wirePlane answers each ACK of clusters with others: one of them has changed.
type wirePlane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	clusters [2]*discoveryv3.DiscoveryResponse
	others   [resource.NumTypes]*discoveryv3.DiscoveryResponse
}

func wireNames() (names []string) {
	for i := range wireClusters {
		names = append(names, fmt.Sprintf("outbound|8080||svc-%d.namespace.svc.cluster.local", i))
	}
	return names
}

func newWirePlane() *wirePlane {
	p := &wirePlane{}
	names := wireNames()
	var clusters, endpoints []proto.Message
	for _, name := range names {
		clusters = append(clusters, largeCluster(name, 0))
		endpoints = append(endpoints, endpointsAt(name, 1))
	}
	response := func(typ resource.Type, list ...proto.Message) *discoveryv3.DiscoveryResponse {
		msg := &discoveryv3.DiscoveryResponse{TypeUrl: typ.URL(), VersionInfo: "1", Nonce: "1"}
		for _, m := range list {
			msg.Resources = append(msg.Resources, wrap(m))
		}
		return msg
	}
	p.others[lds] = response(lds, listenerTo("svc", "svc"))
	p.others[rds] = response(rds, routesTo("svc", names...))
	p.others[eds] = response(eds, endpoints...)
	p.clusters[0] = response(cds, clusters...)
	clusters[7] = largeCluster(names[7], 1)
	p.clusters[1] = response(cds, clusters...)
	return p
}

func (p *wirePlane) StreamAggregatedResources(st discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	var said [resource.NumTypes]int
	for {
		req, err := st.Recv()
		if err != nil {
			return err
		}
		typ, _ := resource.TypeOf(req.GetTypeUrl())
		msg := p.others[typ]
		if typ == cds {
			msg = p.clusters[said[typ]%2]
		} else if said[typ] > 0 {
			continue
		}
		if len(req.GetResourceNames()) < wireClusters && typ >= cds {
			continue
		}
		if typ == cds && said[cds] > 1 && req.GetResponseNonce() == "" {
			continue
		}
		said[typ]++
		if err := st.Send(msg); err != nil {
			return err
		}
	}
}

// BenchmarkWireClusterChange is a change of one of 4000 clusters of 1.3 KB in state of
// the world, from the control plane, which is another process, to the watcher: processor
// time of the client's process. impl=none is gRPC alone: a client that accepts each
// message unseen.
func BenchmarkWireClusterChange(b *testing.B) {
	for _, impl := range []struct {
		name  string
		start func(b *testing.B, addr string) (next func())
	}{{"none", startWireNull}, {"ours", startWireClient}} {
		start := sync.OnceValue(func() func() { return impl.start(b, startWirePlane(b)) })
		b.Run("impl="+impl.name, func(b *testing.B) { measureWire(b, start()) })
	}
}

// startWirePlane starts the control plane, and returns its address.
func startWirePlane(b *testing.B) string {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), wireServer+"=1")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(addr)
}

// startWireClient returns a function that waits for the next update.
func startWireClient(b *testing.B, addr string) func() {
	cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+serverDoc(addr)+`], "node": {"id": "wire"}}`))
	if err != nil {
		b.Fatal(err)
	}
	c := Acquire(cfg, Options{Linger: -1, Logger: slog.New(slog.DiscardHandler)})
	b.Cleanup(func() { c.Release(); <-c.done })
	w := make(updates)
	b.Cleanup(c.view().Watch("svc", "svc", w))
	return func() { <-w }
}

// startWireNull is startWireClient for impl=none.
func startWireNull(b *testing.B, addr string) func() {
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<28)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cc.Close() })
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(b.Context(), grpc.ForceCodecV2(unseen{adscodec.New()}))
	if err != nil {
		b.Fatal(err)
	}
	req := &discoveryv3.DiscoveryRequest{TypeUrl: cds.URL(), ResourceNames: wireNames(), ResponseNonce: "1"}
	return func() {
		if err := st.Send(req); err != nil {
			b.Fatal(err)
		}
		if err := st.RecvMsg(nil); err != nil {
			b.Fatal(err)
		}
	}
}

// unseen is a codec that does not decode messages.
type unseen struct{ encoding.CodecV2 }

func (unseen) Unmarshal(mem.BufferSlice, any) error { return nil }

func measureWire(b *testing.B, next func()) {
	for range 20 {
		next()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := cputime.Process()
	b.ResetTimer()
	for range b.N {
		next()
	}
	b.StopTimer()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64((cputime.Process()-cpu).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(after.NumGC-before.NumGC)/float64(b.N), "GC/op")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N)/1024, "KiB/op")
}

// updates is a Watcher that reports each call.
type updates chan struct{}

func (u updates) Update(*picker.Config) {
	select {
	case u <- struct{}{}:
	case <-time.After(maxWatcherWait):
	}
}
func (u updates) Error(error) {}
