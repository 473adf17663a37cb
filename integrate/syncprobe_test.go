// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/proberpc"
	"github.com/xdslb/xdslb/integrate/probe"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A loaded is a backend that reports a load that the test sets.
type loaded struct {
	testgrpc.UnimplementedTestServiceServer
	addr   netip.AddrPort
	report atomic.Pointer[proberpc.Report]
	rpcs   atomic.Int64
	probes atomic.Int64
}

func (l *loaded) UnaryCall(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	l.rpcs.Add(1)
	// By then there may be more probes.
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Millisecond):
	}
	return &testgrpc.SimpleResponse{Hostname: l.addr.String()}, nil
}

func (l *loaded) FullDuplexCall(testgrpc.TestService_FullDuplexCallServer) error { return nil }

func newLoaded(t *testing.T, report *proberpc.Report) *loaded {
	t.Helper()
	l := new(loaded)
	l.report.Store(report)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	l.addr = netip.MustParseAddrPort(lis.Addr().String())
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if info.FullMethod != probe.Method {
			return handler(ctx, req)
		}
		l.probes.Add(1)
		return l.report.Load(), nil
	}))
	testgrpc.RegisterTestServiceServer(s, l)
	probe.Register(s, probe.NewLoad())
	done := make(chan error)
	go func() { done <- s.Serve(lis) }()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return l
}

// synchronousFleet is three backends, the last of which is the worst, and a control plane that
// has each RPC ask all of them.
func synchronousFleet(t *testing.T) ([]*loaded, *xdstest.Server) {
	t.Helper()
	list := []*loaded{
		newLoaded(t, &proberpc.Report{InFlight: 1, LatencyNs: 1e6}),
		newLoaded(t, &proberpc.Report{InFlight: 1, LatencyNs: 2e6}),
		newLoaded(t, &proberpc.Report{InFlight: 1, LatencyNs: 9e9}),
	}
	control := xdstest.New(t, xdstest.Options{})
	set(t, control, fleetOf(list, integrate.Prequal, map[string]any{"synchronous": 3, "probeTimeout": "10s", "maxProbesPerSecond": 10_000}))
	return list, control
}

func fleetOf(list []*loaded, policy string, config map[string]any) xdstest.Resources {
	var z xdstest.Locality
	z.Zone, z.Weight = "a", 1
	for _, l := range list {
		z.Endpoints = append(z.Endpoints, xdstest.Endpoint{Addr: l.addr})
	}
	r := xdstest.Service(target, z)
	r.Clusters[0] = xdstest.Cluster(target, target, testplane.Policies(testplane.TypedStruct(policy, config)))
	return r
}

// allReady makes RPCs until each backend of a fleet has been asked.
func allReady(t *testing.T, cc *grpc.ClientConn, list []*loaded) {
	t.Helper()
	for _, l := range list {
		for l.probes.Load() == 0 {
			if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, l := range list {
		l.rpcs.Store(0)
		l.probes.Store(0)
	}
}

// TestSynchronous: each RPC probes three endpoints and uses two answers, so it is never sent to the
// worst. The mode follows changes of the policy.
func TestSynchronous(t *testing.T) {
	list, control := synchronousFleet(t)
	cc := dial(t, control.Bootstrap("n"))
	allReady(t, cc, list)
	const n = 100
	for range n {
		if _, err := call(t, cc); err != nil {
			t.Fatal(err)
		}
	}
	asked := list[0].probes.Load() + list[1].probes.Load() + list[2].probes.Load()
	// The best is among the first two to answer for 69 ± 9 of them. Probes of earlier RPCs may still come.
	if list[2].rpcs.Load() != 0 || list[0].rpcs.Load() < n/20 || asked < 2*n || asked > 3*n+n/4 {
		t.Errorf("RPCs went to %d, %d and %d, with %d probes", list[0].rpcs.Load(), list[1].rpcs.Load(), list[2].rpcs.Load(), asked)
	}
	neverTheBad(t, cc, list)
	// Concurrent RPCs all get there.
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			for range 20 {
				if _, err := call(t, cc); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	set(t, control, fleetOf(list, integrate.LeastLatency, nil))
	for { // until the update is there
		before := list[0].probes.Load() + list[1].probes.Load() + list[2].probes.Load()
		for range 20 {
			if _, err := call(t, cc); err != nil {
				t.Fatal(err)
			}
		}
		if before == list[0].probes.Load()+list[1].probes.Load()+list[2].probes.Load() {
			break
		}
	}
	for _, l := range list {
		l.probes.Store(0)
	}
	usual := map[string]any{"synchronous": 3, "probeTimeout": "10s", "maxProbesPerSecond": 10_000}
	set(t, control, fleetOf(list, integrate.Prequal, usual))
	allReady(t, cc, list)
	neverTheBad(t, cc, list)
}

// neverTheBad makes RPCs, before each of which another backend turns bad. By an earlier answer
// it would be as good as others.
func neverTheBad(t *testing.T, cc *grpc.ClientConn, list []*loaded) {
	t.Helper()
	for k := range 100 {
		for i, l := range list {
			r := &proberpc.Report{InFlight: 1, LatencyNs: 1e6}
			if i == k%len(list) {
				r.LatencyNs = 9e9
			}
			l.report.Store(r)
		}
		if got, err := call(t, cc); err != nil || got == list[k%len(list)].addr.String() {
			t.Fatalf("RPC %d went to %s, which is bad now, %v", k, got, err)
		}
	}
}

// TestSynchronousLost: an RPC waits for no more than it has to.
func TestSynchronousLost(t *testing.T) {
	list, control := synchronousFleet(t)
	cc := dial(t, control.Bootstrap("n"))
	allReady(t, cc, list)
	if err := func() error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{})
		return err
	}(); err == nil {
		t.Error("an RPC that was cancelled succeeded")
	}
	for _, l := range list {
		l.report.Store(&proberpc.Report{GoingAway: true})
	}
	for range 50 { // all are going away, and still better than nothing
		if _, err := call(t, cc); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSynchronousWithoutInterceptors: RPCs use the results of earlier probes, which is logged, and in
// the status. Streams do so on any channel.
func TestSynchronousWithoutInterceptors(t *testing.T) {
	list, control := synchronousFleet(t)
	cc := withoutInterceptors(t, control.Bootstrap("n"), target)
	allReady(t, cc, list)
	const want = "probes for each RPC: xdslb_prequal uses the results of earlier probes"
	kit.WaitFor(t, "the note in the status", func() bool { return slices.Contains(statusOf(t, cc).Unapplied, want) }) // the link hears of it a moment later than picks
	logs.WantOne(t, target, want)

	stream := dial(t, control.Bootstrap("n"))
	allReady(t, stream, list)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := testgrpc.NewTestServiceClient(stream).FullDuplexCall(ctx)
	kit.Must(t, err)
	for err == nil {
		_, err = s.Recv()
	}
}
