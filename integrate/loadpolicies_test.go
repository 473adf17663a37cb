// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/orca"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/proberpc"
	"github.com/xdslb/xdslb/integrate/probe"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// reporter is a backend that reports its load in both ways: at the end of RPCs
// through grpc-go's orca package, out of band by itself, since that package leaves
// 30 s between reports.
type reporter struct {
	testgrpc.UnimplementedTestServiceServer
	orcaservice.UnimplementedOpenRcaServiceServer
	addr         netip.AddrPort
	perCall, oob atomic.Pointer[orcav3.OrcaLoadReport]
	streams      atomic.Int32
}

func (b *bubble) reporter() *reporter {
	b.t.Helper()
	r := new(reporter)
	lis, err := b.net.Listen("127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	r.addr = netip.MustParseAddrPort(lis.Addr().String())
	s := grpc.NewServer(orca.CallMetricsServerOption(nil))
	testgrpc.RegisterTestServiceServer(s, r)
	orcaservice.RegisterOpenRcaServiceServer(s, r)
	done := make(chan error)
	go func() { done <- s.Serve(lis) }()
	b.t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return r
}

// UnaryCall answers with the backend's address.
func (r *reporter) UnaryCall(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	if report := r.perCall.Load(); report != nil {
		metrics := orca.CallMetricsRecorderFromContext(ctx)
		metrics.SetQPS(report.GetRpsFractional())
		metrics.SetApplicationUtilization(report.GetApplicationUtilization())
	}
	return &testgrpc.SimpleResponse{Hostname: r.addr.String()}, nil
}

// report has the backend report its load in the configured way, and another load in the other.
func (r *reporter) report(outOfBand bool, asked, other *orcav3.OrcaLoadReport) {
	if outOfBand {
		asked, other = other, asked
	}
	r.perCall.Store(asked)
	r.oob.Store(other)
}

// StreamCoreMetrics reports at the requested interval.
func (r *reporter) StreamCoreMetrics(req *orcaservice.OrcaLoadReportRequest, s grpc.ServerStreamingServer[orcav3.OrcaLoadReport]) error {
	r.streams.Add(1)
	tick := time.NewTicker(req.GetReportInterval().AsDuration())
	defer tick.Stop()
	for {
		if report := r.oob.Load(); report != nil {
			if err := s.Send(report); err != nil {
				return err
			}
		}
		select {
		case <-s.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

// withWRR is the policy of a cluster.
func withWRR(t *testing.T, outOfBand bool) testplane.ClusterOption {
	config, err := anypb.New(&wrrv3.ClientSideWeightedRoundRobin{
		EnableOobLoadReport: wrapperspb.Bool(outOfBand),
		OobReportingPeriod:  durationpb.New(50 * time.Millisecond),
		BlackoutPeriod:      durationpb.New(50 * time.Millisecond),
		WeightUpdatePeriod:  durationpb.New(100 * time.Millisecond),
	})
	kit.Must(t, err)
	return func(c *clusterv3.Cluster) {
		c.LoadBalancingPolicy = &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
			TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "wrr", TypedConfig: config},
		}}}
	}
}

// TestClientWRR: RPCs are distributed by the load reports of three backends, at the end of RPCs or
// out of band, one of them by the second of its addresses, and follow a change; reports of the
// other kind do not count (A51, A58, T-WRR-5).
func TestClientWRR(t *testing.T) {
	for _, outOfBand := range []bool{false, true} {
		t.Run(fmt.Sprintf("outOfBand=%v", outOfBand), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) { checkClientWRR(t, b, outOfBand) })
		})
	}
}

func checkClientWRR(t *testing.T, b *bubble, outOfBand bool) {
	var reporters [3]*reporter
	var endpoints []xdstest.Endpoint
	for i := range reporters {
		reporters[i] = b.reporter()
		endpoints = append(endpoints, xdstest.Endpoint{Addr: reporters[i].addr})
	}
	gone := b.backends(1)[0]
	gone.Stop()
	endpoints[2] = xdstest.Endpoint{Addr: gone.Addr()}
	r := xdstest.Service(target, xdstest.Locality{Endpoints: endpoints})
	addAddress(r.Endpoints[0].Endpoints[0].LbEndpoints[2], reporters[2].addr)
	r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, withWRR(t, outOfBand))}
	control := b.control()
	set(t, control, r)
	cc := b.dial(b.config(control))

	// Backends report 100 queries per second at a utilization of 1/weight, and
	// something else in the way that is not asked for.
	report := func(weights ...float64) {
		for i, w := range weights {
			reporters[i].report(outOfBand, &orcav3.OrcaLoadReport{RpsFractional: 100, ApplicationUtilization: 1 / w},
				&orcav3.OrcaLoadReport{RpsFractional: 100 * float64(i+1), ApplicationUtilization: 0.5})
		}
	}
	// off returns by how much the share of a backend is off at most.
	off := func(n int, weights ...float64) (worst float64) {
		counts := map[string]int{}
		for range n {
			host, err := call(t, cc, grpc.WaitForReady(true))
			kit.Must(t, err)
			counts[host]++
			time.Sleep(time.Millisecond)
		}
		for i, w := range weights {
			share := float64(counts[reporters[i].addr.String()]) / float64(n)
			worst = max(worst, math.Abs(share/(w/(weights[0]+weights[1]+weights[2]))-1))
		}
		return worst
	}
	for _, weights := range [][]float64{{1, 2, 3}, {4, 1, 1}} {
		report(weights...)
		off(300, weights...) // until it is known, and weights are made of it
		worst := off(600, weights...)
		t.Logf("weights %v: off by %.1f %% at most", weights, 100*worst)
		if worst > 0.05 {
			t.Errorf("weights %v: a share is off by %.1f %%, want at most 5 %%", weights, 100*worst)
		}
	}
	want := int32(0)
	if outOfBand {
		want = 1
	}
	for i, r := range reporters {
		if n := r.streams.Load(); n != want {
			t.Errorf("backend %d was asked for %d streams of reports, want %d", i, n, want)
		}
	}
}

// peakEWMA asks for Envoy's PeakEwma, whose Go type is in a module of its own.
func peakEWMA(c *clusterv3.Cluster) {
	c.LoadBalancingPolicy = &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "policy", TypedConfig: &anypb.Any{
			TypeUrl: "type.googleapis.com/envoy.extensions.load_balancing_policies.peak_ewma.v3alpha.PeakEwma",
		}},
	}}}
}

// TestSlowGetsFew: a backend that is slow gets few of the RPCs under least request (A48) and least latency, in whichever
// way the policy is configured.
func TestSlowGetsFew(t *testing.T) {
	for name, policy := range map[string]any{ // a cluster's, or that of a channel without xDS
		"least request":             testplane.LeastRequest(2),
		"least request, standalone": `{"xdslb_least_request": {"choiceCount": 4}}`,
		"least latency":             testplane.Policies(testplane.TypedStruct(integrate.LeastLatency, map[string]any{"decayTime": "5s"})),
		"PeakEwma":                  testplane.ClusterOption(peakEWMA),
		"least latency, standalone": `{"xdslb_least_latency": {}}`,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				if option, ok := policy.(testplane.ClusterOption); ok {
					cc, backends := withPolicy(t, b, option)
					checkSlowGetsFew(t, cc, backends)
					return
				}
				backends := b.backends(4)
				cc, _ := dialStandalone(t, b.net.Dialer("client"), policy.(string), backends)
				connected(t, cc, backends)
				checkSlowGetsFew(t, cc, backends)
			})
		})
	}
}

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
			succeed(t, cc, grpc.WaitForReady(true))
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
		succeed(t, cc)
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
			succeed(t, cc)
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

// TestSynchronousWithoutInterceptors: RPCs use the results of earlier probes, which is logged, and in
// the status. Streams do so on any channel.
func TestSynchronousWithoutInterceptors(t *testing.T) {
	list, control := synchronousFleet(t)
	cc := dialBare(t, control.Bootstrap("n"), target)
	allReady(t, cc, list)
	const want = "probes for each RPC: xdslb_prequal uses the results of earlier probes"
	kit.WaitFor(t, "the note in the status", func() bool { return slices.Contains(statusOf(t, cc).Unapplied, want) }) // the link hears of it a moment later than picks
	logs.WantOne(t, target, want)

	stream := dial(t, control.Bootstrap("n"))
	allReady(t, stream, list)
	ctx := minute(t)
	s, err := testgrpc.NewTestServiceClient(stream).FullDuplexCall(ctx)
	kit.Must(t, err)
	for err == nil {
		_, err = s.Recv()
	}
}
