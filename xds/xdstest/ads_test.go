// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest_test

import (
	"context"
	"io"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// client is an ADS client controlled by the test, valid or not.
type client struct {
	*testing.T
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

func dialRaw(t *testing.T, ctx context.Context, s *xdstest.Server) client {
	t.Helper()
	cc, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx)
	kit.Must(t, err)
	return client{t, stream}
}

// send answers resp, which may be nil, and subscribes to names.
func (c client) send(typeURL string, resp *discoveryv3.DiscoveryResponse, reject string, names ...string) {
	c.Helper()
	req := &discoveryv3.DiscoveryRequest{
		TypeUrl: typeURL, ResourceNames: names, ResponseNonce: resp.GetNonce(), VersionInfo: resp.GetVersionInfo(),
	}
	if reject != "" {
		req.ErrorDetail = &statuspb.Status{Message: reject}
	}
	if err := c.Send(req); err != nil {
		c.Fatal(err)
	}
}

// receive returns a response, which has to have n resources.
func (c client) receive(n int) *discoveryv3.DiscoveryResponse {
	c.Helper()
	resp, err := c.Recv()
	if err != nil {
		c.Fatal(err)
	}
	if len(resp.GetResources()) != n {
		c.Fatalf("%d resources received, want %d", len(resp.GetResources()), n)
	}
	return resp
}

// T-XDS-2, T-XDS-4, T-XDS-6: which requests count as answers, and which answers are awaited.
func TestProtocol(t *testing.T) {
	leak.Check(t)
	ctx := testContext(t)
	s := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service("a")
	r.Add(xdstest.Service("b"))
	set(t, s, r)
	c := dialRaw(t, ctx, s)

	c.send(xdstest.CDS, nil, "")
	all := c.receive(2) // the legacy wildcard
	c.send(xdstest.CDS, all, "", "a")
	if err := s.WaitACK(ctx, xdstest.CDS); err != nil {
		t.Error(err)
	}

	// Each type has its nonces; a stale one is passed over.
	c.send(xdstest.EDS, nil, "", "a")
	first := c.receive(1)
	c.send(xdstest.EDS, first, "", "a")
	if err := s.WaitACK(ctx, xdstest.EDS); err != nil {
		t.Error(err)
	}
	kit.Must(t, s.Resend(xdstest.EDS, "a"))
	second := c.receive(1)
	c.send(xdstest.EDS, first, "stale", "a", "b")
	c.send(xdstest.EDS, second, "bad", "a")
	if detail, err := s.WaitNACK(ctx, xdstest.EDS); detail != "bad" || err != nil {
		t.Errorf("WaitNACK() = %q, %v, want bad", detail, err)
	}

	// A request that follows a NACK with the same nonce subscribes, no more.
	c.send(xdstest.EDS, second, "", "a", "b")
	third := c.receive(1) // b
	if got := s.Stats(xdstest.EDS); got.ACKs != 1 || got.NACKs != 1 || got.Requests != 5 || got.Responses != 3 || len(got.Names) != 2 {
		t.Errorf("Stats() = %+v, want 1 ACK, 1 NACK, 5 requests, 3 responses, 2 names", got)
	}
	c.send(xdstest.EDS, third, "", "a", "b")
	if err := s.WaitACK(ctx, xdstest.EDS); err != nil {
		t.Error(err)
	}

	// A resource that was removed before a client requested it is not answered.
	c.send(xdstest.LDS, nil, "", "a")
	listener := c.receive(1)
	c.send(xdstest.LDS, listener, "", "a")
	r.Listeners = r.Listeners[:1]
	set(t, s, r)
	c.send(xdstest.LDS, listener, "", "a", "b")
	kit.Must(t, s.Wait(ctx, func() bool { return len(s.Stats(xdstest.LDS).Names) == 2 }))
	if err := s.WaitACK(ctx, xdstest.LDS); err != nil {
		t.Error(err)
	}

	// Removals of endpoints are not sent, so no answer is expected.
	r.Endpoints = nil
	set(t, s, r)
	if err := s.WaitACK(ctx, xdstest.EDS); err != nil {
		t.Error(err)
	}

	s.BreakStreams()
	if _, err := c.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want UNAVAILABLE", err)
	}
}

// With SingleStream, a stream ends in order when another one opens, in both ADS variants.
func TestSingleStream(t *testing.T) {
	leak.Check(t)
	ctx := testContext(t)
	s := xdstest.New(t, xdstest.Options{SingleStream: true})
	set(t, s, xdstest.Service("a"))
	first := dialRaw(t, ctx, s)
	first.send(xdstest.CDS, nil, "", "a")
	first.receive(1)
	second := dialRaw(t, ctx, s)
	second.send(xdstest.CDS, nil, "", "a")
	second.receive(1)
	if _, err := first.Recv(); err != io.EOF {
		t.Errorf("the first stream ended with %v, want EOF", err)
	}
	cc, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	delta, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).DeltaAggregatedResources(ctx)
	kit.Must(t, err)
	kit.Must(t, delta.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xdstest.CDS, ResourceNamesSubscribe: []string{"a"}}))
	if resp, err := delta.Recv(); err != nil || len(resp.GetResources()) != 1 {
		t.Fatalf("received %v, %v", resp, err)
	}
	if _, err := second.Recv(); err != io.EOF {
		t.Errorf("the second stream ended with %v, want EOF", err)
	}
	dialRaw(t, ctx, s).send(xdstest.CDS, nil, "", "a")
	if _, err := delta.Recv(); err != io.EOF {
		t.Errorf("the incremental stream ended with %v, want EOF", err)
	}
}
