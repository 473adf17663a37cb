// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// BenchmarkDisabled is a unary RPC over loopback on a channel of stock, on a channel of ours that
// was handed to stock, and on a channel of ours. The second route of the two matches.
func BenchmarkDisabled(b *testing.B) {
	for _, impl := range []string{"stock", "stock_disabled", "ours"} {
		b.Run("impl="+impl, func(b *testing.B) {
			name, _ := service(b, 3, func(r *xdstest.Resources) {
				host := r.Routes[0].VirtualHosts[0]
				host.Routes = []*routev3.Route{xdstest.Route("/other", host.Name), xdstest.Route("", host.Name)}
			})
			var cc *grpc.ClientConn
			switch impl {
			case "stock":
				b.Setenv("XDSLB_DISABLE", "*")
				cc = closing(b)(grpc.NewClient("xds:///"+name, plaintext))
			case "stock_disabled":
				b.Setenv("XDSLB_DISABLE", "*")
				cc = closing(b)(integrate.NewClient("xds:///"+name, plaintext))
			case "ours":
				cc = closing(b)(integrate.NewClient("xds:///"+name, plaintext))
			}
			client := testgrpc.NewTestServiceClient(cc)
			if _, err := client.EmptyCall(context.Background(), &testgrpc.Empty{}, grpc.WaitForReady(true)); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.EmptyCall(context.Background(), &testgrpc.Empty{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
