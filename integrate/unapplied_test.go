// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/internal/weights"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// The tests of this file are about features that a channel does not apply, or not yet, and how
// users are notified (D15).

// TestMissingInterceptorsAreLogged: a channel without interceptors logs once for its target the
// features of its configuration that need them, and the remedy; channels that have them, and
// configurations that need none, log nothing.
func TestMissingInterceptorsAreLogged(t *testing.T) {
	backends, control := start(t, 1)
	route := retried(limited(absent(xdstest.Route("", "a"), "nobody"), time.Minute), 1)
	route.RequestHeadersToAdd = []*corev3.HeaderValueOption{setHeader("x-set", "route")}
	full := clusters(backends, []*hcmv3.HttpFilter{httpFilter(t, "chaos-monkey", abort(codes.Aborted, 1e6))}, route)
	plain := clusters(backends, nil, retried(limited(xdstest.Route("", "a"), time.Minute), 1))
	serve := func(name string, r xdstest.Resources) {
		t.Helper()
		r.Listeners[0].Name = name
		set(t, control, r)
	}

	serve("lacks.log.test", full)
	for range 2 { // channels
		cc := dialBare(t, control.Bootstrap("n"), "lacks.log.test")
		for range 2 {
			succeed(t, cc)
		}
	}
	const what = `not_applied=HTTP filters ["chaos-monkey"]; ` +
		`the retries of 1 route that gRPC's service config cannot express; the timeouts of 1 route that`
	logs.WantOne(t, "lacks.log.test", what, "; changes of request headers, by 1 of the routes", "integrate.NewClient", "integrate.DialOptions")

	if _, err := call(t, dialTo(t, integrate.Config{Bootstrap: control.Bootstrap("m"), Linger: -1}, "lacks.log.test")); status.Code(err) != codes.Aborted {
		t.Errorf("with interceptors: %v, want ABORTED", err)
	}
	byHand := dialByHand(t, control.Bootstrap("o"))
	serve(target, full)
	if _, err := call(t, byHand); status.Code(err) != codes.Aborted {
		t.Errorf("with interceptors put together by hand: %v, want ABORTED", err)
	}
	control = xdstest.New(t, xdstest.Options{})
	serve("plain.log.test", plain)
	if _, err := call(t, dialBare(t, control.Bootstrap("n"), "plain.log.test")); err != nil {
		t.Error(err)
	}
	found := append(logs.With(target, "not_applied", "chaos-monkey"), logs.With("plain.log.test", "not_applied")...)
	if len(found) > 0 {
		t.Errorf("log lines about channels that lack nothing: %s", found)
	}
}

// TestOrderIsLogged: an interceptor behind ours that changes where RPCs go is
// reported once; an HTTP filter that changes headers does not change where RPCs go,
// and is not reported.
func TestOrderIsLogged(t *testing.T) {
	backends, control := start(t, 2)
	r := clusters(backends, nil, header(xdstest.Route("", "a"), "x-tenant", "blue"), retried(absent(xdstest.Route("", "b"), "nobody"), 1))
	r.Listeners[0] = xdstest.Listener("order.log.test", target)
	set(t, control, r)
	blue := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoker(metadata.AppendToOutgoingContext(ctx, "x-tenant", "blue"), method, req, reply, cc, opts...)
	})
	for range 3 {
		succeed(t, dialTo(t, integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1}, "order.log.test", blue))
	}
	logs.WantOne(t, "order.log.test", "Put integrate.DialOptions last")
	if n := backends[0].Calls(); n != 3 {
		t.Errorf("%d of 3 RPCs went by the header of an interceptor behind ours", n)
	}

	r.Listeners[0] = xdstest.Listener("filter.log.test", target, httpFilter(t, "tenant", typedStruct("acme.Tenant", "name", "blue")))
	set(t, control, r)
	cc := dialTo(t, integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1}, "filter.log.test")
	before := backends[1].Calls()
	for range 3 {
		succeed(t, cc)
		s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(t.Context())
		kit.Must(t, err)
		if _, err := s.Header(); err != nil {
			t.Fatal(err)
		}
		if err := s.CloseSend(); err != nil {
			t.Error(err)
		}
	}
	if found := logs.With("filter.log.test", "interceptor"); len(found) > 0 || backends[1].Calls()-before != 6 {
		t.Errorf("log lines about a filter that adds a header: %q; %d of 6 RPCs went to the route of the headers before", found, backends[1].Calls()-before)
	}
}

// TestWaitSaysWhatFor: if the deadline of an RPC expires before the first configuration, its error
// names the missing resource and the server.
func TestWaitSaysWhatFor(t *testing.T) {
	inBubble(t, checkWaitSaysWhatFor)
}

func checkWaitSaysWhatFor(t *testing.T, b *bubble) {
	control := b.control()
	r := clusters(b.backends(1), nil, xdstest.Route("", "a"))
	r.Clusters, r.Endpoints = nil, nil
	set(t, control, r)
	for name, want := range map[string]string{"typo": `Listener resource "typo"`, target: `Cluster resource "a"`} {
		for _, wait := range []bool{false, true} {
			cc := b.dialTo(b.config(control), name)
			for kind, rpc := range map[string]func(context.Context, ...grpc.CallOption) error{
				"unary": func(ctx context.Context, opts ...grpc.CallOption) error { return empty(ctx, cc, opts...) },
				"stream": func(ctx context.Context, opts ...grpc.CallOption) error {
					_, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx, opts...)
					return err
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				finished := 0
				err := rpc(ctx, grpc.WaitForReady(wait), grpc.OnFinish(func(error) { finished++ }))
				cancel()
				if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "waiting for "+want) || !strings.Contains(err.Error(), control.Addr()) || !strings.Contains(err.Error(), t.Name()) || finished != 1 {
					t.Errorf("%s, wait for ready %v: %v, and OnFinish called %d times; want DEADLINE_EXCEEDED while waiting for %s from the server, and once", kind, wait, err, finished, want)
				}
			}
		}
	}
}

// TestWeightsAreLogged checks that one line names all clusters whose endpoints have different
// weights, however many channels and clusters there are, with the way to ignore the weights; that
// clusters found within the next minute share a further line; and that a channel that closes first
// logs them.
func TestWeightsAreLogged(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		time.Sleep(24 * time.Hour) // since a line of another test
		control, own := b.control(), &kit.Logs{}
		endpoints := xdstest.BackendEndpoints(b.backends(2)...)
		endpoints[0].Weight, endpoints[1].Weight = 1, 3
		connect := func(names ...string) (all []*grpc.ClientConn) {
			for _, name := range names {
				kit.Must(t, control.Update(xdstest.Service(name, xdstest.Locality{Endpoints: endpoints})))
				cfg := b.config(control)
				cfg.Logger = slog.New(own)
				cc := b.dialTo(cfg, name)
				cc.Connect()
				all = append(all, cc)
			}
			synctest.Wait()
			return all
		}
		want := func(lines int, clusters ...string) {
			t.Helper()
			synctest.Wait()
			found := own.With("different weights", "IgnoreEndpointWeights")
			if len(found) != lines {
				t.Fatalf("%d lines: %q, want %d", len(found), found, lines)
			}
			for _, c := range clusters {
				if !strings.Contains(found[lines-1], c) {
					t.Errorf("%q, want cluster %s in it", found[lines-1], c)
				}
			}
		}
		connect("weighted-a", "weighted-b", "weighted-c", "weighted-b")
		want(0)
		time.Sleep(weights.Window)
		want(1, "clusters=", "weighted-a", "weighted-b", "weighted-c")
		connect("weighted-d", "weighted-e", "weighted-a")
		time.Sleep(eventlog.Interval - 2*weights.Window)
		want(1)
		time.Sleep(2 * weights.Window)
		want(2, "clusters=weighted-d, weighted-e")
		later := connect("weighted-f")
		_ = later[0].Close()
		want(3, "clusters=weighted-f")
	})
}

// spoiler replaces the Listeners that a control plane sends.
type spoiler struct {
	grpc.ServerStream
	with *atomic.Pointer[anypb.Any] // nothing if it has none
}

// SendMsg implements grpc.ServerStream.
func (s spoiler) SendMsg(m any) error {
	bad := s.with.Load()
	switch resp := proto.Clone(m.(proto.Message)).(type) {
	case *discoveryv3.DiscoveryResponse:
		if bad != nil && resp.TypeUrl == xdstest.LDS {
			resp.Resources = []*anypb.Any{bad}
			m = resp
		}
	case *discoveryv3.DeltaDiscoveryResponse:
		if bad != nil && resp.TypeUrl == xdstest.LDS {
			resp.Resources = []*discoveryv3.Resource{{Name: target, Version: "1", Resource: bad}}
			m = resp
		}
	}
	return s.ServerStream.SendMsg(m)
}

// TestUnreadResources: a resource that cannot be parsed, or of another type than its response, has no name
// to which the error could be attributed. The errors of WaitReady and of RPCs, Status with its events, and
// the problems of the debug page have the reason, before and after the resource counts as missing, and until
// a response is valid. RPCs that have a configuration continue, and the problems have the reason too.
func TestUnreadResources(t *testing.T) {
	for _, delta := range []bool{false, true} {
		for _, tt := range []struct {
			bad  *anypb.Any
			want string
		}{
			{&anypb.Any{TypeUrl: xdstest.LDS, Value: []byte("rubbish")}, "malformed"},
			{&anypb.Any{TypeUrl: xdstest.CDS, Value: []byte("\n\x01a")}, `a resource of type "` + xdstest.CDS},
		} {
			t.Run(fmt.Sprintf("delta=%t,%s", delta, tt.want[:4]), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bubble) {
					var with atomic.Pointer[anypb.Any]
					with.Store(tt.bad)
					control := xdstest.New(t, xdstest.Options{Listen: b.net.Listen, Server: []grpc.ServerOption{
						grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
							return next(srv, spoiler{ss, &with})
						}),
					}})
					set(t, control, service(b.backends(1)...))
					cfg := b.config(control)
					cfg.Delta = delta
					cc := b.dial(cfg)
					problems := func() string {
						s, err := integrate.StatusOf(cc)
						kit.Must(t, err)
						return fmt.Sprint(diagnosis.Find(&s))
					}
					for _, phase := range []string{"waiting", "missing"} {
						texts := map[string]string{}
						for _, c := range []struct {
							where string
							f     func(context.Context) error
						}{
							{"RPC", func(ctx context.Context) error {
								_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(phase == "waiting"))
								return err
							}},
							{"WaitReady", func(ctx context.Context) error { return integrate.WaitReady(ctx, cc, emptyCall) }},
							{"Explain", func(ctx context.Context) error { _, err := integrate.Explain(ctx, cc, emptyCall); return err }},
						} {
							ctx, cancel := context.WithTimeout(t.Context(), time.Second)
							texts[c.where] = fmt.Sprint(c.f(ctx))
							cancel()
						}
						s, err := integrate.StatusOf(cc)
						kit.Must(t, err)
						texts["Status.Error"], texts["Status.Events"], texts["problems"] = s.Error, fmt.Sprint(s.Events), problems()
						texts["Status.Servers"] = s.Servers[0].Rejected
						for where, text := range texts {
							if !strings.Contains(text, tt.want) || strings.Contains(text, "has not sent it") {
								t.Errorf("%s: %s lacks %q, or says that the server has sent nothing: %s", phase, where, tt.want, text)
							}
						}
						time.Sleep(16 * time.Second)
						synctest.Wait()
					}
					restart := func(bad *anypb.Any) {
						with.Store(bad)
						kit.Must(t, control.Restart())
						time.Sleep(time.Minute)
						synctest.Wait()
					}
					restart(nil)
					if _, err := call(t, cc); err != nil {
						t.Error(err)
					}
					if text := problems(); strings.Contains(text, tt.want) {
						t.Errorf("after a valid response: %s", text)
					}
					set(t, control, service(b.backends(2)...))
					restart(tt.bad)
					if _, err := call(t, cc); err != nil {
						t.Error(err)
					}
					if text := problems(); !delta && !strings.Contains(text, tt.want) {
						t.Errorf("with a configuration: the problems lack %q: %s", tt.want, text)
					}
				})
			})
		}
	}
}
