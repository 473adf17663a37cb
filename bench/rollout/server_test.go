// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"net"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/xds"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestStockServer: a server of stock's in the same program, configured by the same control
// plane, serves clients of both kinds.
func TestStockServer(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	addr := lis.Addr().(*net.TCPAddr).AddrPort()
	name := unique(t)
	r := xdstest.Service(name, xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: addr}}})
	r.Listeners = append(r.Listeners, serverListener(t, uint32(addr.Port())))
	kit.Must(t, control.Update(r))
	s, err := xds.NewGRPCServer()
	kit.Must(t, err)
	testgrpc.RegisterTestServiceServer(s, answering{})
	go func() { _ = s.Serve(lis) }()
	t.Cleanup(s.Stop)
	for _, disable := range []string{"", "*"} {
		t.Setenv("XDSLB_DISABLE", disable)
		if err := call(t, closing(t)(integrate.NewClient("xds:///"+name, plaintext)), grpc.WaitForReady(true)); err != nil {
			t.Errorf("disable %q: %v", disable, err)
		}
	}
	if got := requests.asked(name); got != ourAgent+", "+stockAgent {
		t.Errorf("clients were %s", got)
	}
}

// answering answers.
type answering struct {
	testgrpc.UnimplementedTestServiceServer
}

func (answering) UnaryCall(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{}, nil
}

// serverListener lets the server at a port answer everything.
func serverListener(t *testing.T, port uint32) *listenerv3.Listener {
	hcm := &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{{
			Domains: []string{"*"}, Routes: []*routev3.Route{{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{}},
				Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}},
			}},
		}}}},
		HttpFilters: []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: anyOf(t, &routerv3.Router{})}}},
	}
	return &listenerv3.Listener{
		Name: fmt.Sprintf("server/127.0.0.1:%d", port),
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		}}},
		FilterChains: []*listenerv3.FilterChain{{
			Filters: []*listenerv3.Filter{{Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: anyOf(t, hcm)}}},
		}},
	}
}
