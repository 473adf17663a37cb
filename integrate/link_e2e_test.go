// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// linkPath is the method in whose entry of the service config a channel's number is.
const linkPath = "/xdslb.internal.Channel/Number"

// TestServiceConfigIsEmpty checks that no RPC pays for a service config with methods if no route
// needs it, however the channel was made, also after StatusOf and after the channel was idle.
func TestServiceConfigIsEmpty(t *testing.T) {
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	control := xdstest.New(t, xdstest.Options{})
	set(t, control, xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)}))
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

// TestRouteOfLinkPath checks that the other routes' timeouts apply if a route has the path in
// whose entry of the service config a channel's number is.
func TestRouteOfLinkPath(t *testing.T) {
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	control := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
	exact, all := xdstest.Route("", target), xdstest.Route("", target)
	exact.Match.PathSpecifier = &routev3.RouteMatch_Path{Path: linkPath}
	for route, d := range map[*routev3.Route]time.Duration{exact: 7 * time.Second, all: time.Nanosecond} {
		route.GetRoute().MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(d)}
	}
	r.Routes[0] = xdstest.RouteConfig(target, exact, all)
	set(t, control, r)
	for way, cc := range map[string]*grpc.ClientConn{"DialOptions": dial(t, control.Bootstrap("a")), "NewBuilder": withoutInterceptors(t, control.Bootstrap("b"), target)} {
		_, _ = call(t, cc) // the first RPC of a channel without interceptors may precede the routes
		for range 2 {
			if _, err := call(t, cc, grpc.WaitForReady(true)); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%s: an RPC of a route with a timeout of 1 ns: %v", way, err)
			}
			_ = statusOf(t, cc)
		}
	}
}
