// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// BenchmarkLEDSUpdate measures a change of the weight of one of n endpoints, by incremental
// ADS: source=eds sends the whole assignment, source=leds a single member of a collection.
// client-cpu-µs/op, client-KiB/op and allocs/op are for the client, which is a separate
// process, from the arrival of the response until it is idle; all-cpu-µs/op includes the
// processor time of the control plane. impl=none is a client that accepts everything without
// decoding: gRPC's part.
//
// The clients run on a fakegrpc.Channel, without connections to backends. Each update is
// published separately. All implementations of a size alternate.
func BenchmarkLEDSUpdate(b *testing.B) {
	for _, n := range sizes(1000, 10000) {
		measured := sync.OnceValue(func() map[string]updateCost { return measureLEDS(b, n) })
		for _, source := range []string{"eds", "leds"} {
			for _, impl := range []string{"none", "ours"} {
				b.Run(fmt.Sprintf("impl=%s/n=%d/source=%s", impl, n, source), func(b *testing.B) {
					cost := measured()[source+" "+impl]
					cost.report(b)
					b.ReportMetric(cost.all, "all-cpu-µs/op")
					b.ReportMetric(cost.down, "down-B/op")
				})
			}
		}
	}
}

func measureLEDS(b *testing.B, n int) map[string]updateCost {
	list := make(map[string]contender)
	for _, source := range []string{"eds", "leds"} {
		for _, impl := range []string{"none", "ours"} {
			w := startLEDS(b, impl, n, source == "leds")
			list[source+" "+impl] = contender{client: w.client, update: w.update, down: w.meter.down.Load}
		}
	}
	return measureUpdates(b, list, 15, 20)
}

type ledsWorld struct {
	control *xdstest.Scripted
	client  *apart
	meter   meter
	typ     string
	// next returns the control plane's resources for a revision.
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
	spec := clientSpec{Impl: impl, Endpoints: n, Addr: addr, Delta: true, Names: map[string][]string{xdstest.EDS: {service}}}
	if collections {
		for i := range 5 {
			spec.Names[xdstest.LEDS] = append(spec.Names[xdstest.LEDS], xdstest.Glob("", fmt.Sprint(service, "/", i)))
		}
	}
	spec.Bootstrap = fmt.Appendf(nil, `{"node": {"id": %q}, "authorities": {"": {}}, "xds_servers": [{
		"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3", "xdslb.delta_ads"]}]}`, b.Name(), addr)
	w.client = startApart(b, spec)
	if err := w.await(0); err != nil {
		b.Fatal(err)
	}
	return w
}

// update changes the endpoint, and waits until that has been accepted.
func (w *ledsWorld) update() error {
	revision++
	acks := w.control.Stats(w.typ).ACKs
	if err := w.control.Update(w.next(revision)); err != nil {
		return err
	}
	return w.await(acks)
}

// await waits until more than some responses with endpoints have been accepted.
func (w *ledsWorld) await(acks int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.control.Wait(ctx, func() bool { return w.control.Stats(w.typ).ACKs > acks }); err != nil {
		return fmt.Errorf("%w; %v", err, w.control.Violations())
	}
	return nil
}
