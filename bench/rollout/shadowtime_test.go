// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/bench/cputime"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// BenchmarkShadowTime measures the processor time of an RPC of stock, client, server and
// network together, alone and with a Shadow. The two alternate in many short rounds of one
// process, since their difference is smaller than the drift of a machine within a second. The
// figure is the minimum of the rounds; added-ns/op is the median of the differences to the
// adjacent round of stock. stock_again is another channel like stock: its difference is noise.
func BenchmarkShadowTime(b *testing.B) {
	measured := sync.OnceValue(func() map[string]float64 { return shadowTime(b) })
	for _, impl := range []string{"stock", "stock_again", "stock_shadow"} {
		b.Run("impl="+impl, func(b *testing.B) {
			m := measured()
			b.ReportMetric(0, "ns/op") // it is all of the rounds
			b.ReportMetric(m[impl], "cpu-ns/op")
			if impl != "stock" {
				b.ReportMetric(m[impl+" added"], "added-ns/op")
			}
		})
	}
}

func shadowTime(b *testing.B) map[string]float64 {
	rounds, each := 200, 100
	if testing.Short() {
		rounds, each = 2, 10
	}
	name, _ := service(b, 3, func(r *xdstest.Resources) {
		host := r.Routes[0].VirtualHosts[0]
		host.Routes = []*routev3.Route{xdstest.Route("/other", host.Name), xdstest.Route("", host.Name)}
	})
	b.Setenv("XDSLB_DISABLE", "*")
	shadow, s := shadowed(b, name, integrate.Config{})
	ready(b, shadow, s)
	channels := map[string]*grpc.ClientConn{"stock_shadow": shadow}
	for _, impl := range []string{"stock", "stock_again"} {
		channels[impl] = closing(b)(grpc.NewClient("xds:///"+name, plaintext))
	}
	round := func(impl string) float64 {
		client := testgrpc.NewTestServiceClient(channels[impl])
		runtime.GC() // none in between
		from := cputime.Process()
		for range each {
			if _, err := client.EmptyCall(context.Background(), &testgrpc.Empty{}, grpc.WaitForReady(true)); err != nil {
				b.Fatal(err)
			}
		}
		return float64((cputime.Process() - from).Nanoseconds()) / float64(each)
	}
	all := map[string][]float64{}
	for n := range rounds {
		order := []string{"stock_again", "stock", "stock_shadow"}
		if n%2 == 1 {
			slices.Reverse(order)
		}
		for _, impl := range order {
			all[impl] = append(all[impl], round(impl))
		}
	}
	result := map[string]float64{}
	for impl, costs := range all {
		result[impl] = slices.Min(costs)
		added := slices.Clone(costs)
		for i, cost := range all["stock"] {
			added[i] -= cost
		}
		slices.Sort(added)
		result[impl+" added"] = added[len(added)/2]
	}
	return result
}
