// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// init registers a filter whose RPCs fail with a configured text.
func init() {
	parse := func(m proto.Message) (any, error) {
		s, ok := m.(*structpb.Struct)
		if say := s.GetFields()["say"].GetStringValue(); ok && say != "" {
			return say, nil
		}
		return nil, errors.New("say must be a text")
	}
	integrate.RegisterHTTPFilter(integrate.HTTPFilter{
		Config: "xdslb.test.Say", ParseConfig: parse,
		Override: "xdslb.test.SayElse", ParseOverride: parse,
		Intercept: func(config, override any) (grpc.UnaryClientInterceptor, grpc.StreamClientInterceptor) {
			say, _ := config.(string)
			if override != nil {
				say = fmt.Sprint(say, " ", override)
			}
			err := status.Error(codes.FailedPrecondition, say)
			return func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
					return err
				}, func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, ...grpc.CallOption) (grpc.ClientStream, error) {
					return nil, err
				}
		},
	})
}

// gauge has how many RPCs the filter xdslb.test.Gauge has seen begin and end.
var gauge struct{ begun, ended atomic.Int64 }

func init() {
	integrate.RegisterHTTPFilter(integrate.HTTPFilter{
		Config:      "xdslb.test.Gauge",
		ParseConfig: func(proto.Message) (any, error) { return true, nil },
		Intercept: func(any, any) (grpc.UnaryClientInterceptor, grpc.StreamClientInterceptor) {
			onFinish := func(opts []grpc.CallOption) []grpc.CallOption {
				gauge.begun.Add(1)
				return append(opts, grpc.OnFinish(func(error) { gauge.ended.Add(1) }))
			}
			return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					return invoker(ctx, method, req, reply, cc, onFinish(opts)...)
				}, func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
					return streamer(ctx, desc, cc, method, onFinish(opts)...)
				}
		},
	})
}

// TestOnFinishOfHTTPFilter: OnFinish that a filter adds to an RPC is called once, whether gRPC or
// an interceptor makes the attempts, and in addition to the application's OnFinish (A39).
func TestOnFinishOfHTTPFilter(t *testing.T) {
	for name, route := range map[string]*routev3.Route{
		"no retries":             xdstest.Route("", target),
		"retries by gRPC":        retried(xdstest.Route("", target), 2),
		"retries by interceptor": retried(absent(xdstest.Route("", target), "nobody"), 2),
		"hedges":                 hedged(xdstest.Route("", target), time.Minute),
	} {
		inBubble(t, func(t *testing.T, b *bubble) {
			backends, control := b.backends(1), b.control()
			r := service(backends...)
			r.Routes[0] = xdstest.RouteConfig(target, route)
			r.Listeners[0] = xdstest.Listener(target, target, httpFilter(t, "gauge", typedStruct("xdslb.test.Gauge", "x", "x")))
			set(t, control, r)
			cfg := b.config(control)
			cfg.Idempotent = func(string) bool { return true }
			cc := b.dial(cfg)
			succeed(t, cc, grpc.WaitForReady(true))
			for _, code := range []codes.Code{codes.OK, codes.NotFound, codes.Unavailable} {
				gauge.begun.Store(0)
				gauge.ended.Store(0)
				backends[0].Fail(code)
				own := 0
				_, _ = call(t, cc, grpc.OnFinish(func(error) { own++ }))
				s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(t.Context(), grpc.OnFinish(func(error) { own++ }))
				if err == nil {
					_ = s.CloseSend()
					_, _ = s.Recv()
				}
				if begun, ended := gauge.begun.Load(), gauge.ended.Load(); begun != 2 || ended != 2 || own != 2 {
					t.Errorf("%s, %v: the filter sees %d RPCs begin and %d end, and the application %d, want 2 each", name, code, begun, ended, own)
				}
			}
		})
	}
}

// typedStruct is a filter's configuration of a type that is no generated one.
func typedStruct(name, key, value string) *xdsv3.TypedStruct {
	return &xdsv3.TypedStruct{TypeUrl: "type.googleapis.com/" + name, Value: &structpb.Struct{
		Fields: map[string]*structpb.Value{key: structpb.NewStringValue(value)},
	}}
}

// TestHTTPFilter: a user's filter is configured by the listener and overridden
// by virtual host, route and weighted cluster, the last of which counts; it can
// be turned off and on by each; and an override of another filter's type, or for
// an unknown instance, is none (A39).
func TestHTTPFilter(t *testing.T) {
	override := func(m proto.Message) map[string]*anypb.Any {
		return map[string]*anypb.Any{"say": anyOf(t, m), "unknown": anyOf(t, m)}
	}
	elseSay := func(s string) proto.Message { return typedStruct("xdslb.test.SayElse", "say", s) }
	path := func(p string, m proto.Message) *routev3.Route {
		r := xdstest.Route(p, target)
		if m != nil {
			r.TypedPerFilterConfig = override(m)
		}
		return r
	}
	weighted := func(p string, m proto.Message) *routev3.Route {
		r := testplane.WeightedRoute(p, testplane.Weighted{Cluster: target, Weight: 1})
		r.TypedPerFilterConfig = override(elseSay("route"))
		r.GetRoute().GetWeightedClusters().Clusters[0].TypedPerFilterConfig = override(m)
		return r
	}
	backends, control := start(t, 1)
	r := service(backends...)
	unknown := httpFilter(t, "unknown", typedStruct("xdslb.test.Unknown", "say", "x"))
	unknown.IsOptional = true
	off := httpFilter(t, "off", typedStruct("xdslb.test.Say", "say", "off"))
	off.Disabled = true
	r.Listeners[0] = xdstest.Listener(target, target, unknown, off, httpFilter(t, "say", typedStruct("xdslb.test.Say", "say", "listener")))
	r.Routes[0] = xdstest.RouteConfig(target,
		path("/host/", nil),
		path("/route/", elseSay("route")),
		weighted("/cluster/", elseSay("cluster")),
		path("/off/", &routev3.FilterConfig{Disabled: true}),
		path("/on/", &routev3.FilterConfig{}),
		path("/wrapped/", &routev3.FilterConfig{Config: anyOf(t, elseSay("wrapped"))}),
		path("/type/", abort(codes.Aborted, 1e6)),
	)
	r.Routes[0].VirtualHosts[0].TypedPerFilterConfig = override(elseSay("host"))
	set(t, control, r)
	cc := dial(t, control.Bootstrap("n"))
	for _, tt := range []struct{ path, want string }{
		{"/host/", "listener host"},
		{"/route/", "listener route"},
		{"/cluster/", "listener cluster"},
		{"/on/", "listener"},
		{"/wrapped/", "listener wrapped"},
		{"/type/", "listener host"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := cc.Invoke(ctx, tt.path+"m", &testgrpc.Empty{}, &testgrpc.Empty{})
		if s := status.Convert(err); s.Code() != codes.FailedPrecondition || s.Message() != tt.want {
			t.Errorf("%s: RPC fails with %v, want %q", tt.path, err, tt.want)
		}
		_, err = cc.NewStream(ctx, &grpc.StreamDesc{}, tt.path+"m")
		if s := status.Convert(err); s.Message() != tt.want {
			t.Errorf("%s: stream fails with %v, want %q", tt.path, err, tt.want)
		}
		cancel()
	}
	ctx := minute(t)
	if err := cc.Invoke(ctx, "/off/m", &testgrpc.Empty{}, &testgrpc.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("/off/: RPC fails with %v, want the backend's status", err)
	}
}

// TestHTTPFilterRefused: a user's filter refuses a configuration with its own
// words; so are refused a filter that is unknown and not optional, an override of
// one that has none, and a filter behind the router (A39, T-RC-8).
func TestHTTPFilterRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(r *xdstest.Resources)
		typ    string
		want   string
	}{
		{"config", func(r *xdstest.Resources) {
			r.Listeners[0] = xdstest.Listener(target, target, httpFilter(t, "say", typedStruct("xdslb.test.Say", "speak", "x")))
		}, xdstest.LDS, "say must be a text"},
		{"override", func(r *xdstest.Resources) {
			r.Routes[0].VirtualHosts[0].TypedPerFilterConfig = map[string]*anypb.Any{"say": anyOf(t, typedStruct("xdslb.test.SayElse", "x", "x"))}
		}, xdstest.RDS, "say must be a text"},
		{"override by the wrong message", func(r *xdstest.Resources) {
			r.Routes[0].VirtualHosts[0].TypedPerFilterConfig = map[string]*anypb.Any{"say": anyOf(t, typedStruct("xdslb.test.Say", "say", "x"))}
		}, xdstest.RDS, "xdslb.test.Say"},
		{"unknown", func(r *xdstest.Resources) {
			r.Listeners[0] = xdstest.Listener(target, target, httpFilter(t, "x", typedStruct("xdslb.test.Unknown", "x", "x")))
		}, xdstest.LDS, "xdslb.test.Unknown"},
		{"no router", func(r *xdstest.Resources) {
			hcm := &hcmv3.HttpConnectionManager{
				RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: r.Routes[0]},
				HttpFilters:    []*hcmv3.HttpFilter{httpFilter(t, "say", typedStruct("xdslb.test.Say", "say", "x"))},
			}
			r.Listeners[0].ApiListener.ApiListener = anyOf(t, hcm)
		}, xdstest.LDS, "router"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			control := xdstest.New(t, xdstest.Options{})
			r := xdstest.Service(target)
			tt.change(&r)
			set(t, control, r)
			dial(t, control.Bootstrap("n")).Connect()
			ctx := minute(t)
			err := control.Wait(ctx, func() bool { return control.Stats(tt.typ).NACKs > 0 })
			if detail := control.Stats(tt.typ).LastError; err != nil || !strings.Contains(detail, tt.want) {
				t.Errorf("NACK %q, %v; want one that contains %q", detail, err, tt.want)
			}
		})
	}
}

// TestRegisterHTTPFilterPanics: a filter that cannot work is a defect of the
// program.
func TestRegisterHTTPFilterPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("RegisterHTTPFilter accepts a filter without functions")
		}
	}()
	integrate.RegisterHTTPFilter(integrate.HTTPFilter{Config: "x"})
}
