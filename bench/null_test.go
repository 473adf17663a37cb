// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// startNull is a client of the control plane that accepts everything and looks
// at nothing: what an update costs without a client to speak of. It ends with tb.
func startNull(tb testing.TB, control *xdstest.Server) {
	tb.Helper()
	cc := must(tb, func() (*grpc.ClientConn, error) {
		return grpc.NewClient(control.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	tb.Cleanup(func() {
		cancel()
		<-done
		_ = cc.Close()
	})
	stream := must(tb, func() (discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, error) {
		return discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx)
	})
	for _, t := range []string{xdstest.LDS, xdstest.RDS, xdstest.CDS, xdstest.EDS} {
		if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: t, ResourceNames: []string{service}, Node: &corev3.Node{Id: "null"}}); err != nil {
			tb.Fatal(err)
		}
	}
	go func() {
		defer close(done)
		for {
			resp, err := stream.Recv()
			if err != nil {
				return // the end
			}
			ack := &discoveryv3.DiscoveryRequest{TypeUrl: resp.TypeUrl, ResourceNames: []string{service}, VersionInfo: resp.VersionInfo, ResponseNonce: resp.Nonce}
			if stream.Send(ack) != nil {
				return
			}
		}
	}()
	if err := control.WaitACK(ctx, xdstest.EDS); err != nil {
		tb.Fatal(err)
	}
}
