// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer/randomsubsetting"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A headerLog is a server's interceptor that records the headers x-… of attempts. The first attempts
// of an RPC fail, or are not answered.
type headerLog struct {
	fail, stall int

	mu   sync.Mutex
	seen []string // such as "x-a=1,2 x-b="
}

func (l *headerLog) record(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	var headers []string
	for name, values := range md {
		if strings.HasPrefix(name, "x-") {
			headers = append(headers, name+"="+strings.Join(values, ","))
		}
	}
	slices.Sort(headers)
	l.mu.Lock()
	l.seen = append(l.seen, strings.Join(headers, " "))
	l.mu.Unlock()
	previous := 0
	if v := md.Get("grpc-previous-rpc-attempts"); len(v) > 0 {
		previous, _ = strconv.Atoi(v[0])
	}
	switch {
	case previous < l.fail:
		return status.Error(codes.Unavailable, "x")
	case previous < l.stall:
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// take returns the headers since the last call.
func (l *headerLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.seen = nil }()
	return l.seen
}

func (l *headerLog) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := l.record(ctx); err != nil {
				return nil, err
			}
			return handler(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if err := l.record(s.Context()); err != nil {
				return err
			}
			return handler(srv, s)
		}),
	}
}

// setHeader is an entry of request_headers_to_add that replaces values.
func setHeader(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, Value: value}, AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}
}

// TestRequestHeaders: a route's header mutations are sent with each attempt, made by gRPC or by our
// interceptors, also with HTTP filters and sessions. RPCs that applications make with the same
// context do not have them.
func TestRequestHeaders(t *testing.T) {
	perTry := func(r *routev3.Route) *routev3.Route {
		r = retried(r, 1)
		r.GetRoute().RetryPolicy.RetryOn = "5xx"
		r.GetRoute().RetryPolicy.PerTryTimeout = durationpb.New(100 * time.Millisecond)
		return r
	}
	for _, tt := range []struct {
		name        string
		route       func(*routev3.Route) *routev3.Route
		fail, stall int
		session     bool
		attempts    int
	}{
		{name: "one attempt", attempts: 1},
		{name: "retries by gRPC", route: func(r *routev3.Route) *routev3.Route { return retried(r, 2) }, fail: 2, attempts: 3},
		{name: "retries by interceptors", route: func(r *routev3.Route) *routev3.Route { return absent(retried(r, 2), "nobody") }, fail: 2, attempts: 3},
		{name: "per_try_timeout", route: perTry, stall: 1, attempts: 2},
		{name: "session", session: true, attempts: 1},
		{name: "session, retries", session: true, route: func(r *routev3.Route) *routev3.Route { return retried(r, 2) }, fail: 1, attempts: 2},
		{name: "hedges", route: func(r *routev3.Route) *routev3.Route { return hedged(r, 50*time.Millisecond) }, stall: 1, attempts: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				log := &headerLog{fail: tt.fail, stall: tt.stall}
				backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{Listen: b.net.Listen, Server: log.options()})
				control := b.control()
				route := xdstest.Route("", target)
				if tt.route != nil {
					route = tt.route(route)
				}
				route.RequestHeadersToRemove = []string{"x-removed"}
				route.RequestHeadersToAdd = []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-added", Value: "route"}}, setHeader("x-set", "route")}
				r := service(backends...)
				if tt.session {
					r = statefulService(t, false, backends)
				}
				r.Routes[0] = xdstest.RouteConfig(target, route)
				r.Routes[0].VirtualHosts[0].RequestHeadersToAdd = []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-added", Value: "host"}}}
				set(t, control, r)
				cfg := b.config(control)
				cfg.Idempotent = func(string) bool { return true }
				cc := b.dial(cfg)
				kit.Must(t, integrate.WaitReady(t.Context(), cc, testgrpc.TestService_UnaryCall_FullMethodName))
				ctx := metadata.AppendToOutgoingContext(t.Context(), "x-set", "rpc", "x-removed", "rpc", "x-added", "rpc", "X-Other", "rpc")
				want := slices.Repeat([]string{"x-added=rpc,route,host x-other=rpc x-set=route"}, tt.attempts)
				if _, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, new(testgrpc.SimpleRequest)); err != nil {
					t.Error(err)
				}
				if got := log.take(); !slices.Equal(got, want) {
					t.Errorf("a unary RPC sends the headers\n%q, want\n%q", got, want)
				}
				if tt.name == "hedges" {
					return // streams are not hedged
				}
				if err := halfClosed(ctx, cc); err != nil {
					t.Error(err)
				}
				if got := log.take(); !slices.Equal(got, want) {
					t.Errorf("a stream sends the headers\n%q, want\n%q", got, want)
				}
			})
		})
	}
}

// TestRequestHeadersAndPicks: routes and hash policies use the headers before mutations, at all
// attempts and after updates; a weighted cluster has its own mutations.
func TestRequestHeadersAndPicks(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		log := new(headerLog)
		backends := xdstest.NewBackends(t, 4, xdstest.BackendOptions{Listen: b.net.Listen, Server: log.options()})
		control := b.control()
		resources := func(version string) xdstest.Resources {
			r := service(backends[:3]...)
			r.Clusters[0] = xdstest.Cluster(target, target, testplane.RingHash(1024, 4096))
			r.Clusters = append(r.Clusters, xdstest.Cluster("other", "other"))
			r.Endpoints = append(r.Endpoints, xdstest.Endpoints("other", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends[3])}))
			byKey := testplane.HashHeader(retried(header(xdstest.Route("", target), "x-kind", "hashed"), 2), "x-key")
			byKey.RequestHeadersToRemove = []string{"x-kind"}
			byKey.RequestHeadersToAdd = []*corev3.HeaderValueOption{setHeader("x-key", "same"), setHeader("x-version", version)}
			weighted := testplane.WeightedRoute("", testplane.Weighted{Cluster: "other", Weight: 1})
			weighted.RequestHeadersToAdd = []*corev3.HeaderValueOption{setHeader("x-from", "route")}
			weighted.GetRoute().GetWeightedClusters().Clusters[0].RequestHeadersToAdd = []*corev3.HeaderValueOption{setHeader("x-from", "cluster"), setHeader("x-cluster", "other")}
			r.Routes[0] = xdstest.RouteConfig(target, byKey, weighted)
			return r
		}
		set(t, control, resources("1"))
		cc := b.dial(b.config(control))
		rpc := func(kv ...string) (backend, sent string) {
			t.Helper()
			ctx := metadata.AppendToOutgoingContext(t.Context(), kv...)
			res, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, new(testgrpc.SimpleRequest), grpc.WaitForReady(true))
			kit.Must(t, err)
			return res.GetHostname(), log.take()[0]
		}
		if backend, sent := rpc("x-kind", "none"); backend != backends[3].Addr().String() || sent != "x-cluster=other x-from=route x-kind=none" {
			t.Errorf("an RPC of the weighted cluster reaches %s with the headers %q", backend, sent)
		}
		byKey := map[string]string{}
		for _, version := range []string{"1", "2"} {
			set(t, control, resources(version))
			time.Sleep(time.Second)
			for i := range 30 {
				key := strconv.Itoa(i)
				backend, sent := rpc("x-kind", "hashed", "x-key", key)
				if sent != "x-key=same x-version="+version {
					t.Errorf("key %s, version %s: sent %q", key, version, sent)
				}
				if before := byKey[key]; before != "" && before != backend {
					t.Errorf("key %s changed its backend from %s to %s", key, before, backend)
				}
				byKey[key] = backend
			}
		}
		used := map[string]bool{}
		for _, backend := range byKey {
			used[backend] = true
		}
		if len(used) != 3 || used[backends[3].Addr().String()] {
			t.Errorf("30 keys use %d backends, want all 3 of the cluster", len(used))
		}
		if x, err := integrate.Explain(t.Context(), cc, testgrpc.TestService_UnaryCall_FullMethodName); err != nil || !strings.Contains(x.String(), `request headers of cluster "other", first: set "x-from", set "x-cluster"`) {
			t.Errorf("the explanation does not show the header mutations (%v):\n%s", err, x)
		}
	})
}

// tellAuthority has a backend send the authority of each RPC back.
func tellAuthority(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if err := grpc.SetHeader(ctx, metadata.Pairs("authority", md.Get(":authority")[0])); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// TestAuthorityRewriting: an RPC gets the hostname of its endpoint, or the name
// of its LOGICAL_DNS cluster, as its authority if its route asks for that and the
// control plane is trusted; an endpoint without hostname leaves the authority
// alone, and the one that the caller chose for an RPC takes precedence (A81). The same rules apply to
// the authority of a route (A111).
func TestAuthorityRewriting(t *testing.T) {
	backend := xdstest.NewBackends(t, 1, xdstest.BackendOptions{Server: []grpc.ServerOption{grpc.UnaryInterceptor(tellAuthority)}})[0]
	control := xdstest.New(t, xdstest.Options{})
	rewriting := func(path, cluster string) *routev3.Route {
		r := xdstest.Route(path, cluster)
		r.GetRoute().HostRewriteSpecifier = &routev3.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)}
		return r
	}
	literal := func(path, cluster string) *routev3.Route {
		r := xdstest.Route(path, cluster)
		r.GetRoute().HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: "literal.test:80"}
		return r
	}
	const methods = "/grpc.testing.TestService/"
	resources := func(hostname string, routes ...*routev3.Route) xdstest.Resources {
		at := xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backend)}
		r := xdstest.Service(target, at)
		r.Add(xdstest.Resources{
			Clusters: []*clusterv3.Cluster{
				xdstest.Cluster("nameless", target+"2"),
				dnsCluster("dns", backend.Addr().Port()),
				xdstest.Cluster("custom", target, testplane.Policies(testplane.TypedStruct(randomsubsetting.Name, map[string]any{
					"subsetSize": 2., "childPolicy": []any{map[string]any{"round_robin": map[string]any{}}},
				}))),
				xdstest.Cluster("first", target, testplane.Policies(&pickfirstv3.PickFirst{})),
			},
		}, xdstest.Resources{Endpoints: xdstest.Service(target+"2", at).Endpoints})
		r.Endpoints[0].Endpoints[0].LbEndpoints[0].GetEndpoint().Hostname = hostname
		r.Routes[0] = xdstest.RouteConfig(target, routes...)
		return r
	}
	authority := func(cc *grpc.ClientConn, opts ...grpc.CallOption) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var header metadata.MD
		if _, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}, append(opts, grpc.Header(&header))...); err != nil {
			t.Fatal(err)
		}
		return header.Get("authority")[0]
	}
	bootstrap := control.Bootstrap("n")
	trusting := bytes.Replace(bootstrap, []byte(`"xds_v3"`), []byte(`"xds_v3", "trusted_xds_server"`), 1)
	if bytes.Equal(bootstrap, trusting) {
		t.Fatalf("bootstrap %s has no server_features", bootstrap)
	}
	for _, tt := range []struct {
		name      string
		bootstrap []byte
		resources xdstest.Resources
		opts      []grpc.CallOption
		want      string
	}{
		{"rewritten", trusting, resources("a.test", rewriting("", target)), nil, "a.test"},
		{"another name", trusting, resources("b.test", rewriting("", target)), nil, "b.test"},
		{"the caller's", trusting, resources("b.test", rewriting("", target)), []grpc.CallOption{grpc.CallAuthority("c.test")}, "c.test"},
		{"another route", trusting, resources("b.test", rewriting("/other/", target), xdstest.Route(methods, target)), nil, target},
		{"no hostname", trusting, resources("b.test", rewriting("", "nameless")), nil, target},
		{"LOGICAL_DNS", trusting, resources("b.test", rewriting("", "dns")), nil, "localhost"},
		{"a custom policy", trusting, resources("b.test", rewriting("", "custom")), nil, "b.test"},
		{"pick_first", trusting, resources("b.test", rewriting("", "first")), nil, "b.test"},
		{"not trusted", bootstrap, resources("b.test", rewriting("", target)), nil, target},
		{"literal", trusting, resources("b.test", literal("", target)), nil, "literal.test:80"},
		{"literal, retried", trusting, resources("b.test", retried(absent(literal("", target), "nobody"), 1)), nil, "literal.test:80"},
		{"literal, the caller's", trusting, resources("b.test", literal("", target)), []grpc.CallOption{grpc.CallAuthority("c.test")}, "c.test"},
		{"literal, another route", trusting, resources("b.test", literal("/other/", target), xdstest.Route(methods, target)), nil, target},
		{"literal beside hostnames", trusting, resources("b.test", rewriting("/other/", target), literal(methods, "nameless")), nil, "literal.test:80"},
		{"literal, LOGICAL_DNS", trusting, resources("b.test", literal("", "dns")), nil, "literal.test:80"},
		{"literal, a custom policy", trusting, resources("b.test", literal("", "custom")), nil, "literal.test:80"},
		{"literal, pick_first", trusting, resources("b.test", literal("", "first")), nil, "literal.test:80"},
		{"literal, not trusted", bootstrap, resources("b.test", literal("", target)), nil, target},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set(t, control, tt.resources)
			if got := authority(dial(t, tt.bootstrap), tt.opts...); got != tt.want {
				t.Errorf("authority %q, want %q", got, tt.want)
			}
		})
	}
	// An existing channel follows changes, even if only the name changes.
	cc := dial(t, trusting)
	for _, step := range []struct {
		hostname string
		rewrite  bool
	}{{"a.test", false}, {"a.test", true}, {"b.test", true}, {"b.test", false}, {"b.test", true}} {
		route, want := xdstest.Route("", target), target
		if step.rewrite {
			route, want = rewriting("", target), step.hostname
		}
		set(t, control, resources(step.hostname, route))
		for deadline := time.Now().Add(time.Minute); authority(cc) != want; {
			if time.Now().After(deadline) {
				t.Fatalf("authority %q, want %q", authority(cc), want)
			}
		}
	}
}

// dnsCluster is a LOGICAL_DNS cluster for localhost.
func dnsCluster(name string, port uint16) *clusterv3.Cluster {
	c := xdstest.Cluster(name, "")
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_LOGICAL_DNS}
	c.EdsClusterConfig = nil
	c.LoadAssignment = xdstest.Endpoints(name, xdstest.Locality{Endpoints: make([]xdstest.Endpoint, 1)})
	addr := c.LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().GetAddress().GetSocketAddress()
	addr.Address = "localhost"
	addr.PortSpecifier = &corev3.SocketAddress_PortValue{PortValue: uint32(port)}
	return c
}

// handshakes records the authorities of handshakes.
type handshakes struct {
	credentials.TransportCredentials
	authorities chan string
}

func (h handshakes) ClientHandshake(ctx context.Context, authority string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	h.authorities <- authority
	return h.TransportCredentials.ClientHandshake(ctx, authority, c)
}

func (h handshakes) Clone() credentials.TransportCredentials { return h }

// TestHostnames: an EDS resource whose addresses are DNS names is rejected, or with
// AcceptHostnames the dialer gets the names.
func TestHostnames(t *testing.T) {
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	r := statefulService(t, false, backends)
	var names []string
	for i, e := range r.Endpoints[0].Endpoints[0].LbEndpoints {
		at := e.GetEndpoint()
		at.Address.GetSocketAddress().Address = "localhost"
		names = append(names, fmt.Sprintf("localhost:%d", backends[i].Addr().Port()))
	}
	at := r.Endpoints[0].Endpoints[0].LbEndpoints[0].GetEndpoint()
	at.AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
		SocketAddress: &corev3.SocketAddress{Address: "nowhere.invalid", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 1}}}}}}
	control := xdstest.New(t, xdstest.Options{})
	set(t, control, r)

	_, err := call(t, dial(t, control.Bootstrap("n")))
	if want := `must be an IPv4 or IPv6 address without a zone, unless Config.Resources.AcceptHostnames is set (it is "localhost")`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("RPC error is %v, want %q", err, want)
	}

	dialed, authorities := make(chan string, 8), make(chan string, 8)
	cfg := integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1, Resources: integrate.ResourceOptions{AcceptHostnames: true}}
	cc := dialConfig(t, cfg, grpc.WithTransportCredentials(handshakes{insecure.NewCredentials(), authorities}),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			dialed <- addr
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}))
	sessions := map[string]string{}
	for begin := time.Now(); len(sessions) < len(backends) && time.Since(begin) < time.Minute; {
		backend, cookie := inSession(t, cc, "")
		sessions[backend] = cookie
	}
	for i, b := range backends {
		cookie := sessions[b.Addr().String()]
		text, _ := base64.StdEncoding.DecodeString(cookie)
		want := names[i] + ";cluster:" + target
		if i == 0 {
			want = names[i] + ",nowhere.invalid:1;cluster:" + target
		}
		if again, _ := inSession(t, cc, cookie); string(text) != want || again != b.Addr().String() {
			t.Errorf("the cookie of %s is %q, want %q; an RPC with it went to %s", b.Addr(), text, want, again)
		}
		if addr, authority := <-dialed, <-authorities; !slices.Contains(names, addr) || authority != target {
			t.Errorf("dialed %q with authority %q, want one of %q with %q", addr, authority, names, target)
		}
	}
	x, err := integrate.Explain(t.Context(), cc, "/grpc.testing.TestService/UnaryCall")
	kit.Must(t, err)
	for _, name := range names {
		if text := x.String(); !strings.Contains(text, name) || strings.Contains(text, "[::%") {
			t.Errorf("the explanation lacks %s, or shows its internal form:\n%s", name, text)
		}
	}
}
