// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// integrate.NewClient replaces grpc.NewClient. The bootstrap is read from the environment; targets
// of other schemes need none, so that all channels of a program can be made this way.
func ExampleNewClient() {
	cc, err := integrate.NewClient("xds:///orders:8080", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err) // names the error in the bootstrap, and its place
		return
	}
	defer func() { _ = cc.Close() }()
	// ... use cc as any other channel.
}

// The program's own interceptors come first, and xdslb's interceptors last, so that an RPC takes
// the route of the headers that it is sent with.
func ExampleDialOptions() {
	backends, control, err := serve("orders", 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer backends[0].Stop()
	defer control.Stop()

	tenant := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoker(metadata.AppendToOutgoingContext(ctx, "x-tenant", "blue"), method, req, reply, cc, opts...)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(tenant),
	}
	xds, err := integrate.DialOptions(integrate.Config{
		Bootstrap: control.Bootstrap("node-1"), // instead of the environment's
		Linger:    -1,                          // leave the control plane with the last channel
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	cc, err := grpc.NewClient("xds:///orders", append(opts, xds...)...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cc.Close() }()
	fmt.Println(rpcsTo(cc, backends, 1))
	// Output: [1]
}

// The policies work without xDS too: the channel's own resolver supplies the endpoints, and its
// service config selects the policy.
func Example_withoutXDS() {
	backends, err := xdstest.StartBackends(2, xdstest.BackendOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	endpoints := manual.NewBuilderWithScheme("static") // in a program: dns, or one's own
	state := resolver.State{}
	for _, b := range backends {
		defer b.Stop()
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: b.Addr().String()}}})
	}
	endpoints.InitialState(state)
	cc, err := grpc.NewClient("static:///orders", grpc.WithResolvers(endpoints),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"`+integrate.RingHash+`": {"requestHashHeader": "user"}}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cc.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "user", "ada")
	seen := map[string]bool{}
	for range 10 {
		res, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{})
		if err != nil {
			fmt.Println(err)
			return
		}
		seen[res.GetHostname()] = true
	}
	fmt.Println("backends that ada's RPCs went to:", len(seen))
	// Output: backends that ada's RPCs went to: 1
}

// A program that uses xDS is tested with a control plane and backends in the test's
// process. Here a backend is taken out of the service, and no RPC notices.
func Example_test() {
	backends, control, err := serve("orders", 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer backends[0].Stop()
	defer backends[1].Stop()
	defer control.Stop()
	opts, err := integrate.DialOptions(integrate.Config{Bootstrap: control.Bootstrap("node-1"), Linger: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	cc, err := grpc.NewClient("xds:///orders", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cc.Close() }()
	rpcsTo(cc, backends, 10) // prints the errors of RPCs
	if err := control.Set(xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends[1])})); err != nil {
		fmt.Println(err)
		return
	}
	for before := backends[1].Calls(); backends[1].Calls() < before+10; { // it gets all of them soon
		rpcsTo(cc, backends, 1)
	}
	fmt.Println("done")
	// Output: done
}

// serve starts a service with n backends, and its control plane.
func serve(service string, n int) ([]*xdstest.Backend, *xdstest.Server, error) {
	backends, err := xdstest.StartBackends(n, xdstest.BackendOptions{})
	if err != nil {
		return nil, nil, err
	}
	control, err := xdstest.Start(xdstest.Options{})
	if err != nil {
		return nil, nil, err
	}
	return backends, control, control.Set(xdstest.Service(service, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)}))
}

// rpcsTo makes RPCs, and returns how many each backend has got.
func rpcsTo(cc *grpc.ClientConn, backends []*xdstest.Backend, n int) (calls []uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range n {
		if _, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(true)); err != nil {
			fmt.Println(err)
		}
	}
	for _, b := range backends {
		calls = append(calls, b.Calls())
	}
	return calls
}
