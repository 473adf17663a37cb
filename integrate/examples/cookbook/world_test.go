// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/orca"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/probe"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// method is the method of most RPCs.
const method = "/shop.Orders/Get"

// A world is a control plane, eight backends and a channel, in a bubble. Backends 0 to 3 are the
// endpoints of cluster "orders" at first, 4 and 5 those of "orders-canary", and 6 and 7 those of
// "orders-backup". Their addresses are 10.0.0.1:80 to 10.0.0.8:80.
type world struct {
	*testing.T
	net       *xdstest.Network
	control   *xdstest.Server
	backends  []*xdstest.Backend
	busy      [8]atomic.Int32 // utilization that the backends report, in percent
	resources xdstest.Resources
	cfg       integrate.Config
	opts      []grpc.DialOption
	cc        *grpc.ClientConn
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, net: xdstest.NewNetwork()}
	for i := range w.busy {
		load := probe.NewLoad()
		opts := []grpc.ServerOption{
			grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return w.serveStream(i, s) }),
			orca.CallMetricsServerOption(nil), load.ServerOption(),
		}
		w.backends = append(w.backends, xdstest.NewBackends(t, 1, xdstest.BackendOptions{
			Listen: w.net.Listen, Server: opts, Register: func(s *grpc.Server) {
				w.register(s, i)
				probe.Register(s, load)
			},
		})...)
	}
	w.control = xdstest.New(t, xdstest.Options{Listen: w.net.Listen})
	w.resources = xdstest.Service("orders", w.zone("eu-1", 0, 1, 2, 3))
	for name, zone := range map[string]xdstest.Locality{"orders-canary": w.zone("eu-1", 4, 5), "orders-backup": w.zone("eu-1", 6, 7)} {
		w.resources.Clusters = append(w.resources.Clusters, eds(name))
		w.resources.Endpoints = append(w.resources.Endpoints, xdstest.Endpoints(name, zone))
	}
	w.cfg = integrate.Config{
		Bootstrap: w.control.Bootstrap("cookbook"), Linger: -1,
		ControlPlaneDialOptions: []grpc.DialOption{grpc.WithContextDialer(w.net.Dial)},
	}
	w.opts = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	return w
}

// serve answers an RPC: the header has the backend's number and the authority.
func (w *world) serve(ctx context.Context, i int) (*emptypb.Empty, error) {
	if busy := w.busy[i].Load(); busy > 0 {
		report := orca.CallMetricsRecorderFromContext(ctx)
		report.SetQPS(10)
		report.SetApplicationUtilization(float64(busy) / 100)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	got := metadata.Pairs("backend", strconv.Itoa(i), "authority", md.Get(":authority")[0])
	for _, name := range []string{"x-environment", "x-route", "x-debug"} {
		got.Append(name, md.Get(name)...)
	}
	return new(emptypb.Empty), grpc.SetHeader(ctx, got)
}

// serveStream answers RPCs of methods that are not registered.
func (w *world) serveStream(i int, s grpc.ServerStream) error {
	if err := s.RecvMsg(new(emptypb.Empty)); err != nil {
		return err
	}
	if method, _ := grpc.MethodFromServerStream(s); method == healthpb.Health_Watch_FullMethodName {
		status := healthpb.HealthCheckResponse_SERVING
		if i == 0 {
			status = healthpb.HealthCheckResponse_NOT_SERVING
		}
		if err := s.SendMsg(&healthpb.HealthCheckResponse{Status: status}); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}
	out, err := w.serve(s.Context(), i)
	if err != nil {
		return err
	}
	return s.SendMsg(out)
}

// register registers method, which probe.Load counts since it is unary.
func (w *world) register(s *grpc.Server, i int) {
	get := func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := new(emptypb.Empty)
		if err := decode(in); err != nil {
			return nil, err
		}
		handler := func(ctx context.Context, _ any) (any, error) { return w.serve(ctx, i) }
		return intercept(ctx, in, &grpc.UnaryServerInfo{FullMethod: method}, handler)
	}
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "shop.Orders", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Get", Handler: get}},
	}, w)
}

// zone returns a locality with backends as endpoints.
func (w *world) zone(name string, backends ...int) xdstest.Locality {
	l := xdstest.Locality{Place: xdstest.Place{Region: "eu", Zone: name}}
	for _, i := range backends {
		l.Endpoints = append(l.Endpoints, xdstest.Endpoint{Addr: w.backends[i].Addr()})
	}
	return l
}

// put adds a resource, or replaces the one of the same type and name.
func (w *world) put(m proto.Message) {
	r := &w.resources
	switch m := m.(type) {
	case *listenerv3.Listener:
		r.Listeners = replace(r.Listeners, m, (*listenerv3.Listener).GetName)
	case *routev3.RouteConfiguration:
		r.Routes = replace(r.Routes, m, (*routev3.RouteConfiguration).GetName)
	case *clusterv3.Cluster:
		r.Clusters = replace(r.Clusters, m, (*clusterv3.Cluster).GetName)
	case *endpointv3.ClusterLoadAssignment:
		r.Endpoints = replace(r.Endpoints, m, (*endpointv3.ClusterLoadAssignment).GetClusterName)
	default:
		w.Fatalf("%T is not a resource", m)
	}
}

func replace[T any](list []T, m T, name func(T) string) []T {
	for i := range list {
		if name(list[i]) == name(m) {
			list[i] = m
			return list
		}
	}
	return append(list, m)
}

// update puts resources and has the control plane send them.
func (w *world) update(resources ...proto.Message) {
	w.Helper()
	for _, m := range resources {
		w.put(m)
	}
	if err := w.control.Set(w.resources); err != nil {
		w.Fatal(err)
	}
	settle()
}

// settle waits until updates are received, connections are made and the result is in use.
func settle() { time.Sleep(time.Second) }

// endpoints replaces those of cluster "orders".
func (w *world) endpoints(zones ...xdstest.Locality) { w.update(xdstest.Endpoints("orders", zones...)) }

// dial makes the channel, and returns when it is connected to all endpoints that it needs.
func (w *world) dial(opts ...grpc.DialOption) {
	w.Helper()
	ours, err := integrate.DialOptions(w.cfg)
	if err != nil {
		w.Fatal(err)
	}
	opts = append(append(append(ours, grpc.WithContextDialer(w.net.Dial)), w.opts...), opts...)
	if w.cc, err = grpc.NewClient("xds:///orders", opts...); err != nil {
		w.Fatal(err)
	}
	cc := w.cc
	w.Cleanup(func() { _ = cc.Close() })
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	if err := integrate.WaitReady(ctx, cc, method); err != nil {
		w.Fatal(err)
	}
	settle()
}

// An answer is the result of an RPC.
type answer struct {
	backend int // -1 if it failed
	header  metadata.MD
	took    time.Duration
	err     error
}

// call makes an RPC with headers, given as names and values.
func (w *world) call(method string, headers ...string) answer {
	begin, a := time.Now(), answer{backend: -1}
	ctx := metadata.AppendToOutgoingContext(w.Context(), headers...)
	a.err = w.cc.Invoke(ctx, method, new(emptypb.Empty), new(emptypb.Empty), grpc.Header(&a.header))
	if a.took = time.Since(begin); a.err == nil {
		a.backend, a.err = strconv.Atoi(a.header.Get("backend")[0])
	}
	return a
}

// counts makes n RPCs, one after the other, and returns how many each backend answered.
func (w *world) counts(n int, headers ...string) (counts [8]int) {
	w.Helper()
	for range n {
		a := w.call(method, headers...)
		if a.err != nil {
			w.Fatal(a.err)
		}
		counts[a.backend]++
	}
	return counts
}

// wantCounts makes as many RPCs as the counts add up to.
func (w *world) wantCounts(want ...int) {
	w.Helper()
	n, all := 0, [8]int{}
	for i, k := range want {
		n, all[i] = n+k, k
	}
	if got := w.counts(n); got != all {
		w.Errorf("%d RPCs are answered by %v, want %v", n, got, all)
	}
}

// together makes n RPCs at the same time, and returns how many failed.
func (w *world) together(n int) (failed int) {
	var failures atomic.Int64
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			if w.call(method).err != nil {
				failures.Add(1)
			}
		})
	}
	group.Wait()
	return int(failures.Load())
}

// calls returns how many RPCs the backends received.
func (w *world) calls() (n int) {
	for _, b := range w.backends {
		n += int(b.Calls())
	}
	return n
}

// explain returns the route and the leaf cluster of an RPC.
func (w *world) explain(headers ...string) (*report.RouteStatus, *report.LeafStatus) {
	w.Helper()
	x, err := integrate.Explain(metadata.AppendToOutgoingContext(w.Context(), headers...), w.cc, method)
	if err != nil {
		w.Fatal(err)
	}
	r := &x.Routes[len(x.Routes)-1]
	return r, r.Clusters[0].Status.LeafInUse()
}

// wantPolicy verifies which policy cluster "orders" uses.
func (w *world) wantPolicy(want string) {
	w.Helper()
	if _, leaf := w.explain(); leaf.Policy != want {
		w.Errorf("the policy is %q, want %q", leaf.Policy, want)
	}
}

// wantAffinity verifies that all backends of "orders" get RPCs, and that the RPCs of each user
// go to the same one.
func (w *world) wantAffinity() {
	w.Helper()
	seen := map[int]bool{}
	for user := range 40 {
		header := []string{"x-user", fmt.Sprint("user-", user)}
		first := w.call(method, header...)
		if again := w.call(method, header...); first.err != nil || again.backend != first.backend {
			w.Errorf("RPCs of one user go to backends %d and %d (%v)", first.backend, again.backend, first.err)
		}
		seen[first.backend] = true
	}
	if len(seen) != 4 {
		w.Errorf("RPCs of 40 users go to %d backends, want 4", len(seen))
	}
}

// inBootstrap changes an object of the bootstrap.
func (w *world) inBootstrap(change func(doc map[string]any)) {
	w.Helper()
	var doc map[string]any
	if err := json.Unmarshal(w.cfg.Bootstrap, &doc); err != nil {
		w.Fatal(err)
	}
	change(doc)
	var err error
	if w.cfg.Bootstrap, err = json.Marshal(doc); err != nil {
		w.Fatal(err)
	}
}
