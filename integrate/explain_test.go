// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/xdstest"
)

const unaryCall = "/grpc.testing.TestService/UnaryCall"

// possible returns the share of its RPCs that each backend is expected to get. Endpoints that are
// out have none.
func possible(x *report.Explanation) map[string]float64 {
	shares := map[string]float64{}
	for _, r := range x.Routes {
		for _, c := range r.Clusters {
			for _, l := range c.Status.Localities() {
				for _, e := range l.Endpoints {
					if e.Out == "" {
						shares[e.Address] += r.Probability * c.Share * e.Share
					}
				}
			}
		}
	}
	return shares
}

// TestExplainAgrees: RPCs are distributed as Explain reports, by header and by weights, while one
// of the backends is down; with our interceptors and without.
func TestExplainAgrees(t *testing.T) {
	backends := xdstest.NewBackends(t, 4, xdstest.BackendOptions{})
	backends[3].Stop()
	bothWays(t, func(t *testing.T, interceptors bool, open func(bootstrap []byte) *grpc.ClientConn) {
		header := xdstest.Route("", "a")
		header.Match.Headers = []*routev3.HeaderMatcher{{Name: "k", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
			StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "v"}},
		}}}
		header.GetRoute().MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(time.Minute)}
		control := xdstest.New(t, xdstest.Options{})
		r := clusters(backends[:1], nil, header, testplane.WeightedRoute("", testplane.Weighted{Cluster: "a", Weight: 1}, testplane.Weighted{Cluster: "many", Weight: 3}))
		weighted := xdstest.BackendEndpoints(backends[1:]...)
		weighted[0].Weight, weighted[1].Weight, weighted[2].Weight = 1, 2, 5
		r.Clusters = append(r.Clusters, xdstest.Cluster("many", "many"))
		r.Endpoints = append(r.Endpoints, xdstest.Endpoints("many", xdstest.Locality{Endpoints: weighted}))
		set(t, control, r)
		cc := open(control.Bootstrap("n"))
		client := testgrpc.NewTestServiceClient(cc)
		for _, md := range []metadata.MD{nil, {"k": {"v"}}, {"k": {"w"}}} {
			ctx := metadata.NewOutgoingContext(t.Context(), md)
			x := settled(t, ctx, cc)
			shares, got := possible(x), map[string]int{}
			const n = 400
			for range n {
				res, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
				kit.Must(t, err)
				got[res.GetHostname()]++
			}
			for backend, k := range got {
				if shares[backend] == 0 {
					t.Fatalf("headers %v: %d RPCs went to %s:\n%v", md, k, backend, x)
				}
			}
			for backend, p := range shares {
				if d := math.Abs(float64(got[backend]) - p*n); d > 7*math.Sqrt(n*p*(1-p))+1 {
					t.Errorf("headers %v: %s got %d RPCs of %d, want %v:\n%v", md, backend, got[backend], n, p*n, x)
				}
			}
			text := x.String()
			if md != nil && md["k"][0] == "v" && !interceptors != strings.Contains(text, "NOT APPLIED") {
				t.Errorf("interceptors %v:\n%s", interceptors, text)
			}
		}
	})
}

// settled explains an RPC once the endpoints have come to rest.
func settled(t *testing.T, ctx context.Context, cc *grpc.ClientConn) (x *report.Explanation) {
	t.Helper()
	cc.Connect()
	kit.WaitFor(t, "an explanation of ready endpoints", func() bool {
		var err error
		x, err = integrate.Explain(ctx, cc, unaryCall)
		return err == nil && !x.Pending && !strings.Contains(x.String(), "CONNECTING") && !strings.Contains(x.String(), "wait\n")
	})
	return x
}

// TestExplainErrors: channels that cannot be explained say why, and are not connected for
// it.
func TestExplainErrors(t *testing.T) {
	control := xdstest.New(t, xdstest.Options{})
	explain := func(cc *grpc.ClientConn, method string, want ...string) {
		t.Helper()
		x, err := integrate.Explain(t.Context(), cc, method)
		if err == nil {
			t.Fatalf("explained:\n%v", x)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %q lacks %q", err, w)
			}
		}
	}
	cc := dial(t, control.Bootstrap("n"))
	explain(cc, unaryCall, "is idle", "Connect")
	explain(cc, "no slash", "slash")
	if s := cc.GetState(); s != connectivity.Idle {
		t.Errorf("the channel is %v, want IDLE", s)
	}
	cc.Connect()
	kit.WaitFor(t, "an explanation without configuration", func() bool {
		_, err := integrate.Explain(t.Context(), cc, unaryCall)
		return strings.Contains(fmt.Sprint(err), "no configuration yet: ") && strings.Contains(err.Error(), "waiting for Listener")
	})
	r := xdstest.Service(target)
	r.Routes[0].VirtualHosts[0].Domains = []string{"other"}
	set(t, control, r)
	kit.WaitFor(t, "an explanation without virtual host", func() bool {
		_, err := integrate.Explain(t.Context(), cc, unaryCall)
		return strings.Contains(fmt.Sprint(err), "cannot be served") && strings.Contains(err.Error(), "no virtual host")
	})
	_ = cc.Close()
	explain(cc, unaryCall, "closed")
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	t.Cleanup(func() { _ = lis.Close() })
	plain, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	t.Cleanup(func() { _ = plain.Close() })
	explain(plain, unaryCall, "neither xds nor xdslb")
}

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
			r := service(backends...)
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
	set(t, control, service(backends...))
	succeed(t, cc, grpc.WaitForReady(true))
	backends[0].Fail(codes.Unavailable)
	if _, err := call(t, cc); status.Code(err) != codes.Unavailable || len(status.Convert(err).Details()) > 0 {
		t.Errorf("a server's error: %v with %v, want UNAVAILABLE as it is", err, status.Convert(err).Details())
	}
}
