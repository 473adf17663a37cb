// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"io"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// anyOf wraps a message, which encodes.
func anyOf(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	kit.Must(t, err)
	return a
}

// httpFilter is an instance of a filter.
func httpFilter(t testing.TB, name string, config proto.Message) *hcmv3.HttpFilter {
	t.Helper()
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: anyOf(t, config)}}
}

// abort fails RPCs, that many of a million, with a code.
func abort(code codes.Code, perMillion uint32) *faultv3.HTTPFault {
	return &faultv3.HTTPFault{Abort: &faultv3.FaultAbort{
		ErrorType:  &faultv3.FaultAbort_GrpcStatus{GrpcStatus: uint32(code)},
		Percentage: &typev3.FractionalPercent{Numerator: perMillion, Denominator: typev3.FractionalPercent_MILLION},
	}}
}

// byHand are interceptors that were put together by the caller.
var byHand = []grpc.DialOption{grpc.WithChainUnaryInterceptor(integrate.UnaryInterceptor), grpc.WithChainStreamInterceptor(integrate.StreamInterceptor)}

// dialByHand returns a channel with a resolver and interceptors that were put together by the caller.
func dialByHand(t testing.TB, bootstrap []byte) *grpc.ClientConn {
	t.Helper()
	return dialBare(t, bootstrap, target, byHand...)
}

// TestInterceptorsOfOtherChannels: RPCs of a channel with another resolver pass,
// and at once, even if its LB policy is IDLE until it is asked to pick.
func TestInterceptorsOfOtherChannels(t *testing.T) {
	backend := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})[0]
	cc, err := grpc.NewClient("passthrough:///"+backend.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(integrate.UnaryInterceptor))
	kit.Must(t, err)
	defer func() { _ = cc.Close() }()
	passed := false
	err = integrate.UnaryInterceptor(context.Background(), "/s/m", nil, nil, cc, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		passed = true
		return nil
	})
	if err != nil || !passed || cc.GetState() != connectivity.Idle {
		t.Errorf("the interceptor passed an RPC on: %v, error %v, channel %v; want true, none, IDLE", passed, err, cc.GetState())
	}
	for range 2 {
		if _, err := call(t, cc); err != nil {
			t.Error(err)
		}
	}
}

// TestInterceptorAllocs: an RPC whose target has nothing for interceptors costs
// them no allocation, and neither does one whose route has nothing.
func TestInterceptorAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	backends, control := start(t, 1)
	r := service(backends...)
	set(t, control, r)
	cc := dialByHand(t, control.Bootstrap("n"))
	invoker := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	streamer := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return nil, nil
	}
	measure := func(name string) {
		t.Helper()
		succeed(t, cc)
		ctx := t.Context()
		if n := testing.AllocsPerRun(1000, func() {
			_ = integrate.UnaryInterceptor(ctx, "/s/m", nil, nil, cc, invoker)
		}); n != 0 {
			t.Errorf("%s: a unary RPC allocates %v times, want 0", name, n)
		}
		if n := testing.AllocsPerRun(1000, func() {
			_, _ = integrate.StreamInterceptor(ctx, nil, cc, "/s/m", streamer)
		}); n != 0 {
			t.Errorf("%s: a stream allocates %v times, want 0", name, n)
		}
	}
	measure("no filters")

	faulty := xdstest.Route("/other/", target)
	faulty.TypedPerFilterConfig = map[string]*anypb.Any{"fault": anyOf(t, abort(codes.Aborted, 1e6))}
	r.Listeners[0] = xdstest.Listener(target, target, httpFilter(t, "fault", &faultv3.HTTPFault{}))
	r.Routes[0] = xdstest.RouteConfig(target, faulty, xdstest.Route("", target))
	set(t, control, r)
	ctx := minute(t)
	for integrate.UnaryInterceptor(ctx, "/other/m", nil, nil, cc, invoker) == nil { // until it is in force
		if ctx.Err() != nil {
			t.Fatal("the filter does not come into force")
		}
	}
	measure("filters elsewhere")
}

// TestSharedDialOptions: three channels of one value of DialOptions, two of them of the same
// target, each find their own resolver from the interceptors, StatusOf and Channels, also after
// they were idle; and a channel that is closed is not kept in memory.
func TestSharedDialOptions(t *testing.T) {
	backends, control := start(t, 1)
	r := service(backends...)
	r.Listeners = append(r.Listeners, xdstest.Listener("other", target, httpFilter(t, "fault", abort(codes.Aborted, 1e6))))
	set(t, control, r)
	shared, err := integrate.DialOptions(integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1})
	kit.Must(t, err)
	shared = append(shared, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(50*time.Millisecond))
	wants := []codes.Code{codes.OK, codes.Aborted, codes.OK}
	channels := make([]*grpc.ClientConn, len(wants))
	for i, name := range []string{target, "other", target} {
		if channels[i], err = grpc.NewClient("xds:///"+name, shared...); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = channels[i].Close() }()
	}
	numbers := map[int64]bool{}
	for range 2 {
		for i, cc := range channels {
			stream, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(t.Context()) // keeps the channel from getting idle
			if i == 1 && status.Code(err) == codes.Aborted {
				err = nil
			}
			kit.Must(t, err)
			if _, err := call(t, cc); status.Code(err) != wants[i] {
				t.Errorf("channel %d: %v, want %v", i, err, wants[i])
			}
			if stream == nil {
				continue // aborted: the channel may be idle by now
			}
			s := statusOf(t, cc)
			if s.Target != cc.Target() || s.Connectivity != connectivity.Ready.String() || numbers[s.Channel] {
				t.Errorf("channel %d has number %d, target %s and is %s; want another one of its own, %s and READY", i, s.Channel, s.Target, s.Connectivity, cc.Target())
			}
			numbers[s.Channel] = true
			if err := stream.CloseSend(); err != nil {
				t.Error(err)
			}
			if _, err := stream.Recv(); err != io.EOF {
				t.Errorf("channel %d: the stream ends with %v", i, err)
			}
		}
		for _, cc := range channels {
			awaitIdle(t, cc)
		}
	}
	if len(numbers) != 4 {
		t.Errorf("%d resolvers were found, want one for each of two channels and each time that it was not idle", len(numbers))
	}
	closed := weak.Make(channels[2])
	if err := channels[2].Close(); err != nil {
		t.Error(err)
	}
	channels[2] = channels[0]
	kit.WaitFor(t, "a closed channel to be freed", func() bool { runtime.GC(); return closed.Value() == nil })
}

// awaitIdle waits until a channel is idle.
func awaitIdle(t *testing.T, cc *grpc.ClientConn) {
	t.Helper()
	kit.WaitFor(t, "the channel to become idle", func() bool { return cc.GetState() == connectivity.Idle })
}

// linkPath is the method in whose entry of the service config a channel's number is.
const linkPath = "/xdslb.internal.Channel/Number"

// TestServiceConfigIsEmpty checks that no RPC pays for a service config with methods if no route
// needs it, however the channel was made, also after StatusOf and after the channel was idle.
func TestServiceConfigIsEmpty(t *testing.T) {
	backends, control := start(t, 1)
	set(t, control, service(backends...))
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", string(control.Bootstrap("n")))
	cfg := integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1}
	shared, err := integrate.DialOptions(cfg)
	kit.Must(t, err)
	b, err := integrate.NewBuilder(cfg)
	kit.Must(t, err)
	common := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(50 * time.Millisecond)}
	byBuilder := append(slices.Clip(common), grpc.WithResolvers(b))
	ways := []string{"NewClient", "DialOptions", "DialOptions again", "NewBuilder", "NewBuilder and interceptors", "registered scheme"}
	var channels []*grpc.ClientConn
	for i, dial := range []func() (*grpc.ClientConn, error){
		func() (*grpc.ClientConn, error) { return cfg.NewClient("xds:///"+target, common...) },
		func() (*grpc.ClientConn, error) {
			return grpc.NewClient("xds:///"+target, append(shared, common...)...)
		},
		func() (*grpc.ClientConn, error) {
			return grpc.NewClient("xds:///"+target, append(shared, common...)...)
		},
		func() (*grpc.ClientConn, error) { return grpc.NewClient("xds:///"+target, byBuilder...) },
		func() (*grpc.ClientConn, error) {
			return grpc.NewClient("xds:///"+target, append(slices.Clip(byBuilder), byHand...)...)
		},
		func() (*grpc.ClientConn, error) { return grpc.NewClient("xdslb:///"+target, common...) },
	} {
		cc, err := dial()
		if err != nil {
			t.Fatalf("%s: %v", ways[i], err)
		}
		defer func() { _ = cc.Close() }()
		channels = append(channels, cc)
	}
	check := func(after string) {
		t.Helper()
		for i, cc := range channels {
			for _, path := range []string{linkPath, "/s/m"} {
				if m := cc.GetMethodConfig(path); !reflect.DeepEqual(m, grpc.MethodConfig{}) {
					t.Errorf("%s, after %s: the service config has %+v for %s", ways[i], after, m, path)
				}
			}
		}
	}
	rpcs := func() {
		t.Helper()
		for i, cc := range channels {
			if _, err := call(t, cc); err != nil {
				t.Fatalf("%s: %v", ways[i], err)
			}
		}
	}
	for range 2 {
		rpcs()
		check("an RPC")
		numbers := map[int64]bool{}
		for i, cc := range channels {
			if s := statusOf(t, cc); s.Target != cc.Target() || s.Channel == 0 && s.Connectivity != "IDLE" || s.Channel != 0 && numbers[s.Channel] {
				t.Errorf("%s: the channel has number %d, target %s and is %s; want a number of its own", ways[i], s.Channel, s.Target, s.Connectivity)
			} else {
				numbers[s.Channel] = true
			}
		}
		check("StatusOf")
		for _, cc := range channels {
			awaitIdle(t, cc)
		}
	}
}
