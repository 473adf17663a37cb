// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/orca"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
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
	r.Endpoints[0].Endpoints[0].LbEndpoints[2].GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{
		Address: xdstest.Endpoints("", xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: reporters[2].addr}}}).Endpoints[0].LbEndpoints[0].GetEndpoint().GetAddress(),
	}}
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
