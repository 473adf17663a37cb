// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// testContext returns a context that ends before the test would hang.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// dialStock returns a client on grpc-go's own xDS.
func dialStock(t *testing.T, s *xdstest.Server, target string) testgrpc.TestServiceClient {
	t.Helper()
	b, err := xds.NewXDSResolverWithConfigForTesting(s.Bootstrap("stock"))
	kit.Must(t, err)
	cc, err := grpc.NewClient("xds:///"+target, grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return testgrpc.NewTestServiceClient(cc)
}

// hostname returns the backend that answers an RPC.
func hostname(t *testing.T, ctx context.Context, c testgrpc.TestServiceClient) string {
	t.Helper()
	resp, err := c.UnaryCall(ctx, new(testgrpc.SimpleRequest), grpc.WaitForReady(true))
	kit.Must(t, err)
	return resp.GetHostname()
}

func set(t *testing.T, s *xdstest.Server, r xdstest.Resources) {
	t.Helper()
	kit.Must(t, s.Set(r))
}

// TestStockClient checks that grpc-go's xDS client resolves a target from the server, follows
// changes of endpoints, and reports its load, with more resources in the cache than the client
// requests (T-XDS-17).
func TestStockClient(t *testing.T) {
	leak.Check(t)
	ctx := testContext(t)
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	var nodes, issued atomic.Uint64 // in LRS requests
	s := xdstest.New(t, xdstest.Options{LoadInterval: 20 * time.Millisecond, OnLoadRequest: func(req *lrsv3.LoadStatsRequest) {
		if req.GetNode().GetId() == "stock" && len(req.GetClusterStats()) == 0 {
			nodes.Add(1)
		}
		for _, cs := range req.GetClusterStats() {
			for _, ls := range cs.GetUpstreamLocalityStats() {
				issued.Add(ls.GetTotalIssuedRequests())
			}
		}
	}})
	locality := func(b *xdstest.Backend) xdstest.Locality {
		return xdstest.Locality{Place: xdstest.Place{Zone: "a"}, Endpoints: xdstest.BackendEndpoints(b)}
	}
	r := xdstest.Service("svc", locality(backends[0]))
	testplane.LoadReports()(r.Clusters[0])
	r.Add(xdstest.Service("other", locality(backends[1])))
	set(t, s, r)

	c := dialStock(t, s, "svc")
	if got, want := hostname(t, ctx, c), backends[0].Addr().String(); got != want {
		t.Errorf("the RPC went to %s, want %s", got, want)
	}
	for _, typeURL := range []string{xdstest.LDS, xdstest.RDS, xdstest.CDS, xdstest.EDS} {
		if err := s.WaitACK(ctx, typeURL); err != nil {
			t.Error(err)
		}
		if got := s.Stats(typeURL); len(got.Names) != 1 || got.Names[0] != "svc" || got.NACKs != 0 {
			t.Errorf("Stats(%s) = %+v, want subscription to svc without NACKs", typeURL, got)
		}
	}

	r.Endpoints[0] = xdstest.Endpoints("svc", locality(backends[1]))
	set(t, s, r)
	kit.Must(t, s.WaitACK(ctx, xdstest.EDS))
	for hostname(t, ctx, c) != backends[1].Addr().String() {
	}

	// The loads are complete. There can be more than calls: grpc-go counts a pick
	// whose connection was gone by then as issued and, next to its retry, as
	// successful, or as failed.
	err := s.Wait(ctx, func() bool {
		sum := s.Loads("svc", "svc").Total
		return sum.OK >= backends[0].Calls()+backends[1].Calls() && sum.Issued == sum.OK+sum.Failed
	})
	if err != nil {
		t.Errorf("%v; counts: %+v", err, s.Loads("svc", "svc"))
	}
	_, streams := s.LoadStreams()
	if n, sum := nodes.Load(), s.Loads("svc", "svc").Total; streams == 0 || n < 1 || issued.Load() < sum.Issued {
		t.Errorf("%d LRS streams; OnLoadRequest saw the node %d times and %d RPCs, want at least 1 and %d", streams, n, issued.Load(), sum.Issued)
	}
}

// TestWaitNACK checks that a rejected resource is distinguished from an accepted one, that its
// good version stays in use, and that a corrected one is accepted.
func TestWaitNACK(t *testing.T) {
	leak.Check(t)
	ctx := testContext(t)
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	s := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service("svc", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
	set(t, s, r)
	c := dialStock(t, s, "svc")
	hostname(t, ctx, c)

	bad := r
	bad.Clusters = []*clusterv3.Cluster{xdstest.Cluster("svc", "svc", func(c *clusterv3.Cluster) {
		c.LbPolicy = clusterv3.Cluster_MAGLEV
	})}
	set(t, s, bad)
	detail, err := s.WaitNACK(ctx, xdstest.CDS)
	if err != nil || !strings.Contains(detail, "svc") {
		t.Errorf("WaitNACK() = %q, %v, want an error about svc", detail, err)
	}
	if err := s.WaitACK(ctx, xdstest.CDS); err == nil || !strings.Contains(err.Error(), detail) {
		t.Errorf("WaitACK() = %v, want the reason of the NACK", err)
	}
	hostname(t, ctx, c)

	good := r
	good.Clusters = []*clusterv3.Cluster{xdstest.Cluster("svc", "svc", testplane.MaxRequests(7))}
	set(t, s, good)
	if err := s.WaitACK(ctx, xdstest.CDS); err != nil {
		t.Error(err)
	}
	if _, err := s.WaitNACK(ctx, xdstest.CDS); err == nil {
		t.Error("WaitNACK() succeeded on an accepted version")
	}
	if got := s.Stats(xdstest.CDS); got.NACKs != 1 || got.LastError != detail {
		t.Errorf("Stats() = %+v, want one NACK", got)
	}
}

// TestUnchanged checks that unchanged resources are not sent again without Resend, and that
// messages are copied.
func TestUnchanged(t *testing.T) {
	leak.Check(t)
	ctx := testContext(t)
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	s := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service("svc", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
	set(t, s, r)
	hostname(t, ctx, dialStock(t, s, "svc"))
	waitACK := func() (responses int) {
		t.Helper()
		for _, typeURL := range []string{xdstest.LDS, xdstest.RDS, xdstest.CDS, xdstest.EDS} {
			kit.Must(t, s.WaitACK(ctx, typeURL))
			responses += s.Stats(typeURL).Responses
		}
		return responses
	}
	before := waitACK()
	set(t, s, r)
	if got := waitACK(); got != before {
		t.Errorf("%d responses after Set of the same, want %d", got, before)
	}
	if err := s.Update(xdstest.Resources{}); err != nil || waitACK() != before {
		t.Errorf("Update of nothing: %v, %d responses, want %d", err, waitACK(), before)
	}
	testplane.Drop(r.Endpoints[0], "nothing", 0)
	if err := s.Update(xdstest.Resources{Endpoints: r.Endpoints}); err != nil || waitACK() != before+1 {
		t.Errorf("Update of a message changed in place: %v, %d responses, want %d", err, waitACK(), before+1)
	}
	if err := s.Resend(xdstest.EDS, "svc"); err != nil || waitACK() != before+2 {
		t.Errorf("Resend: %v, %d responses, want %d", err, waitACK(), before+2)
	}
	if err := s.Resend(xdstest.EDS, "absent"); err == nil {
		t.Error("Resend of an unknown resource succeeded")
	}
}

// TestSetErrors checks the errors of Set, and that it then has no effect.
func TestSetErrors(t *testing.T) {
	s := xdstest.New(t, xdstest.Options{})
	for name, r := range map[string]xdstest.Resources{
		"named":     {Clusters: []*clusterv3.Cluster{{}}},
		"no name":   {Endpoints: []*endpointv3.ClusterLoadAssignment{nil}},
		"two":       {Clusters: []*clusterv3.Cluster{xdstest.Cluster("a", ""), xdstest.Cluster("a", "")}},
		"svc\xff\"": xdstest.Service("svc\xff"),
	} {
		if err := s.Set(r); err == nil {
			t.Errorf("Set succeeded, want an error about %q", name)
		}
	}
}

// TestRestart shows that Stop cuts streams, that clients go on without a control
// plane, and that they come back to it at the same address.
func TestRestart(t *testing.T) {
	leak.Check(t)
	ctx := testContext(t)
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	s := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service("svc", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends[0])})
	set(t, s, r)
	c := dialStock(t, s, "svc")
	hostname(t, ctx, c)
	if open, total := s.Streams(); open != 1 || total != 1 {
		t.Errorf("Streams() = %d, %d, want 1, 1", open, total)
	}

	s.BreakStreams()
	kit.Must(t, s.Wait(ctx, func() bool { open, total := s.Streams(); return open == 1 && total == 2 }))
	addr := s.Addr()
	s.Stop()
	s.Stop()
	if open, _ := s.Streams(); open != 0 {
		t.Errorf("%d streams open after Stop", open)
	}
	hostname(t, ctx, c)
	kit.Must(t, s.Restart())
	if s.Addr() != addr {
		t.Errorf("Addr() = %s after Restart, want %s", s.Addr(), addr)
	}
	r.Endpoints[0] = xdstest.Endpoints("svc", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends[1])})
	set(t, s, r)
	kit.Must(t, s.WaitACK(ctx, xdstest.EDS))
	for hostname(t, ctx, c) != backends[1].Addr().String() {
	}
}

// TestBackend checks each setting of a backend.
func TestBackend(t *testing.T) {
	leak.Check(t)
	ctx := testContext(t)
	b := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})[0]
	cc, err := grpc.NewClient(b.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	c := testgrpc.NewTestServiceClient(cc)

	if got, want := hostname(t, ctx, c), b.Addr().String(); got != want {
		t.Errorf("UnaryCall answered by %q, want %q", got, want)
	}
	if _, err := c.EmptyCall(ctx, new(testgrpc.Empty)); err != nil {
		t.Error(err)
	}
	b.Fail(codes.DataLoss)
	if _, err := c.EmptyCall(ctx, new(testgrpc.Empty)); status.Code(err) != codes.DataLoss {
		t.Errorf("EmptyCall() = %v, want DATA_LOSS", err)
	}
	b.Fail(codes.OK)

	stream, err := c.FullDuplexCall(ctx)
	kit.Must(t, err)
	kit.Must(t, stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: []byte("echo")}}))
	resp, err := stream.Recv()
	if err != nil || string(resp.GetPayload().GetBody()) != "echo" {
		t.Errorf("FullDuplexCall answered %v, %v, want echo", resp, err)
	}
	if md, err := stream.Header(); err != nil || len(md["xdstest-backend"]) != 1 || md["xdstest-backend"][0] != b.Addr().String() {
		t.Errorf("FullDuplexCall header %v, %v, want %s", md, err, b.Addr())
	}

	b.Stop()
	b.Stop()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want UNAVAILABLE", err)
	}
	kit.Must(t, b.Start())
	if err := b.Start(); err == nil {
		t.Error("Start of a running backend succeeded")
	}
	hostname(t, ctx, c)

	b.SetDelay(time.Hour)
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := c.EmptyCall(short, new(testgrpc.Empty)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("EmptyCall() = %v, want DEADLINE_EXCEEDED", err)
	}
	if got := b.Calls(); got < 5 || got > 6 { // the last may not have reached it
		t.Errorf("Calls() = %d, want 5 or 6", got)
	}
}
