// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// An address that refuses connections.
var nobody = xdstest.Endpoint{Addr: netip.MustParseAddrPort("127.0.0.1:1")}

// infoOf returns the ErrorInfo of an RPC's error, or nil.
func infoOf(err error) *errdetails.ErrorInfo {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == integrate.ErrorDomain {
			return info
		}
	}
	return nil
}

// TestErrorInfo: an RPC that this package ends has its reason and metadata for programs, and the
// node in its message; unary RPCs and streams, with interceptors that have something to do and
// without, wherever the text was made.
func TestErrorInfo(t *testing.T) {
	about := func(more map[string]string) map[string]string {
		all := map[string]string{"target": "xds:///" + target, "listener": target, "authority": target, "node": "node-7"}
		maps.Copy(all, more)
		return all
	}
	inCluster := map[string]string{"cluster": target, "service": target, "priority": "0"}
	tests := []struct {
		reason string
		change func(r *xdstest.Resources)
		opts   []grpc.DialOption
		want   map[string]string
	}{
		{integrate.ReasonDropped, func(r *xdstest.Resources) { testplane.Drop(r.Endpoints[0], "all", 1e6) }, nil,
			map[string]string{"cluster": target, "service": target, "category": "all"}},
		{integrate.ReasonBreaker, func(r *xdstest.Resources) {
			r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, testplane.MaxRequests(0))}
		}, nil, map[string]string{"cluster": target, "service": target, "max_requests": "0"}},
		{integrate.ReasonNoRoute, func(r *xdstest.Resources) { r.Routes[0].VirtualHosts[0].Routes = nil }, nil, nil},
		{integrate.ReasonNotForwarding, func(r *xdstest.Resources) {
			r.Routes[0].VirtualHosts[0].Routes = []*routev3.Route{{
				Name: "wall", Match: xdstest.Route("", target).GetMatch(), Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}},
			}}
		}, nil, map[string]string{"route": `0, "wall"`}},
		{integrate.ReasonNoEndpoints, func(r *xdstest.Resources) { r.Endpoints[0] = xdstest.Endpoints(target) }, nil, map[string]string{"cluster": target}},
		{integrate.ReasonUnreachable, func(r *xdstest.Resources) {
			r.Endpoints[0] = xdstest.Endpoints(target, xdstest.Locality{Endpoints: []xdstest.Endpoint{nobody}})
		}, nil, inCluster},
		{integrate.ReasonTLS, func(*xdstest.Resources) {}, []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(nil))}, inCluster},
		{integrate.ReasonCluster, func(r *xdstest.Resources) { r.Clusters[0].LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED }, nil, map[string]string{"cluster": target}},
		{integrate.ReasonListener, func(r *xdstest.Resources) { r.Routes[0].VirtualHosts = nil }, nil, nil},
	}
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	for _, tt := range tests {
		for _, retries := range []bool{false, true} {
			control := xdstest.New(t, xdstest.Options{})
			r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
			tt.change(&r)
			if hosts := r.Routes[0].GetVirtualHosts(); retries && len(hosts) > 0 {
				hosts[0].Routes = append(hosts[0].Routes, retried(header(xdstest.Route("/other", target), "x", "y"), 1)) // an interceptor's
			}
			set(t, control, r)
			cc := dial(t, control.Bootstrap("node-7"), tt.opts...)
			client := testgrpc.NewTestServiceClient(cc)
			_, unary := client.EmptyCall(t.Context(), &testgrpc.Empty{})
			_, stream := client.FullDuplexCall(t.Context())
			for _, err := range []error{unary, stream} {
				info := infoOf(err)
				if status.Code(err) != codes.Unavailable || info.GetReason() != tt.reason || !maps.Equal(info.GetMetadata(), about(tt.want)) {
					t.Errorf("%s, interceptors with something to do %v: %v, with %v; want metadata %v", tt.reason, retries, err, info, about(tt.want))
				}
				if !strings.Contains(err.Error(), "node-7") {
					t.Errorf("%s: %v, want the node in it", tt.reason, err)
				}
			}
		}
	}
}

// TestErrorInfoOfWait: an RPC that waits for ready until its deadline has the ErrorInfo of its
// wait. An error that a server has sent gets none, even if its text resembles ours.
func TestErrorInfoOfWait(t *testing.T) {
	inBubble(t, checkErrorInfoOfWait)
}

func checkErrorInfoOfWait(t *testing.T, b *bubble) {
	control := b.control()
	set(t, control, xdstest.Service(target, xdstest.Locality{Endpoints: []xdstest.Endpoint{nobody}}))
	cc := b.dial(b.config(control))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(true))
	if status.Code(err) != codes.DeadlineExceeded || infoOf(err).GetReason() != integrate.ReasonUnreachable {
		t.Errorf("an RPC that waits: %v with %v, want DEADLINE_EXCEEDED with %s", err, infoOf(err), integrate.ReasonUnreachable)
	}

	backends := b.backends(1)
	set(t, control, xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)}))
	if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	backends[0].Fail(codes.Unavailable)
	if _, err := call(t, cc); status.Code(err) != codes.Unavailable || len(status.Convert(err).Details()) > 0 {
		t.Errorf("a server's error: %v with %v, want UNAVAILABLE as it is", err, status.Convert(err).Details())
	}
}
