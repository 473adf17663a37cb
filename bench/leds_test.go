// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/bench/stage"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// BenchmarkLEDSUpdate is a change of the weight of one of n endpoints, by incremental ADS,
// from the control plane's Update to the client's ACK, which follows the publication:
// source=eds sends the whole assignment, source=leds the one member of a collection. The
// control plane's share is in it; impl=none, a client that accepts everything unseen, is
// what to take off.
//
// The clients run on a stage, without connections to backends.
func BenchmarkLEDSUpdate(b *testing.B) {
	for _, n := range sizes(1000, 10000) {
		for _, source := range []string{"eds", "leds"} {
			for _, impl := range []string{"none", "ours"} {
				world := sync.OnceValue(func() *ledsWorld { return startLEDS(b, impl, n, source == "leds") })
				b.Run(fmt.Sprintf("impl=%s/n=%d/source=%s", impl, n, source), func(b *testing.B) { world().measure(b) })
			}
		}
	}
}

type ledsWorld struct {
	control *xdstest.Scripted
	meter   meter
	stage   *stage.Stage // nil for impl=none
	typ     string
	// next is what the control plane is given for a revision.
	next func(revision uint32) xdstest.Resources
}

// startLEDS starts a control plane with n endpoints in five localities, and a client.
func startLEDS(b *testing.B, impl string, n int, collections bool) *ledsWorld {
	sc := scenario{localities: 5, perLocality: n / 5, weighted: true}
	r, w := sc.resources(0), &ledsWorld{typ: xdstest.EDS}
	cla := r.Endpoints[0]
	first := cla.Endpoints[0].LbEndpoints[0]
	w.next = func(revision uint32) xdstest.Resources {
		first.LoadBalancingWeight.Value = 1 + revision
		return xdstest.Resources{Endpoints: []*endpointv3.ClusterLoadAssignment{cla}}
	}
	if collections {
		w.typ = xdstest.LEDS
		r.Members = map[string]*endpointv3.LbEndpoint{}
		for i, l := range cla.Endpoints {
			for j, e := range l.LbEndpoints {
				r.Members[xdstest.Member("", fmt.Sprint(service, "/", i), fmt.Sprintf("endpoint-%05d", j))] = e
			}
			xdstest.FromCollection(cla, i, xdstest.Glob("", fmt.Sprint(service, "/", i)))
		}
		name := xdstest.Member("", service+"/0", "endpoint-00000")
		w.next = func(revision uint32) xdstest.Resources {
			first.LoadBalancingWeight.Value = 1 + revision
			return xdstest.Resources{Members: map[string]*endpointv3.LbEndpoint{name: first}}
		}
	}
	listener := must(b, func() (meteredListener, error) {
		l, err := w.meter.listen("127.0.0.1:0")
		if err != nil {
			return meteredListener{}, err
		}
		return l.(meteredListener), nil
	})
	w.control = xdstest.StartScripted(xdstest.ScriptedOptions{Listener: listener})
	b.Cleanup(w.control.Stop)
	if err := w.control.Set(r); err != nil {
		b.Fatal(err)
	}
	addr := listener.Addr().String()
	if impl == "none" {
		startNullDelta(b, addr, collections)
	} else {
		w.start(b, addr, n)
	}
	w.await(b, 0)
	return w
}

// start starts our client.
func (w *ledsWorld) start(b *testing.B, addr string, n int) {
	w.stage = stage.New(nil)
	b.Cleanup(w.stage.Close)
	doc := fmt.Sprintf(`{"node": {"id": %q}, "authorities": {"": {}}, "xds_servers": [{
		"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3", "xdslb.delta_ads"]}]}`, b.Name(), addr)
	builder, err := integrate.NewBuilder(integrate.Config{Bootstrap: []byte(doc), Linger: -1, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = w.stage.Resolve(builder, "xds:///"+service)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err = w.stage.Wait(ctx, n, 0)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// await waits until more than some responses with endpoints have been accepted.
func (w *ledsWorld) await(b *testing.B, acks int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.control.Wait(ctx, func() bool { return w.control.Stats(w.typ).ACKs > acks }); err != nil {
		b.Fatal(err, w.control.Violations())
	}
}

func (w *ledsWorld) measure(b *testing.B) {
	settle(w.stage)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	down, cpu := w.meter.down.Load(), cpuTime()
	b.ResetTimer()
	for range b.N {
		revision++
		acks := w.control.Stats(w.typ).ACKs
		if err := w.control.Update(w.next(revision)); err != nil {
			b.Fatal(err)
		}
		w.await(b, acks)
	}
	b.StopTimer()
	settle(w.stage)
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(w.meter.down.Load()-down)/float64(b.N), "down-B/op")
	b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/1e3, "cpu-µs/op")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N)/1024, "KiB/op")
}

// startNullDelta is startNull for the incremental variant.
func startNullDelta(b *testing.B, addr string, collections bool) {
	cc := must(b, func() (*grpc.ClientConn, error) {
		return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<28)))
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	b.Cleanup(func() {
		cancel()
		<-done
		_ = cc.Close()
	})
	stream := must(b, func() (discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, error) {
		return discoveryv3.NewAggregatedDiscoveryServiceClient(cc).DeltaAggregatedResources(ctx)
	})
	wants := map[string][]string{xdstest.EDS: {service}}
	if collections {
		for i := range 5 {
			wants[xdstest.LEDS] = append(wants[xdstest.LEDS], xdstest.Glob("", fmt.Sprint(service, "/", i)))
		}
	}
	for t, names := range wants {
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: t, ResourceNamesSubscribe: names, Node: &corev3.Node{Id: "null"}}); err != nil {
			b.Fatal(err)
		}
	}
	go func() {
		defer close(done)
		for {
			resp, err := stream.Recv()
			if err != nil || stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.TypeUrl, ResponseNonce: resp.Nonce}) != nil {
				return // the end
			}
		}
	}()
}
