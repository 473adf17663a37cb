// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A control plane that serves one service with two localities and a drop
// category.
func ExampleStart() {
	server, err := xdstest.Start(xdstest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Stop()

	near := xdstest.Locality{
		Place:  xdstest.Place{Region: "eu", Zone: "a"},
		Weight: 3,
		Endpoints: []xdstest.Endpoint{
			{Addr: netip.MustParseAddrPort("192.0.2.1:50051"), Weight: 2},
			{Addr: netip.MustParseAddrPort("192.0.2.2:50051")},
		},
	}
	far := xdstest.Locality{
		Place:     xdstest.Place{Region: "us", Zone: "a"},
		Priority:  1,
		Endpoints: []xdstest.Endpoint{{Addr: netip.MustParseAddrPort("198.51.100.1:50051")}},
	}
	resources := xdstest.Service("greeter", near, far)
	xdstest.Drop(resources.Endpoints[0], "lottery", 1000)
	if err := server.Set(resources); err != nil {
		fmt.Println(err)
		return
	}
	open, total := server.Streams()
	fmt.Println(len(server.Bootstrap("me")) > 0, open, total)
	// Output: true 0 0
}

// A control plane that sends an empty listener, and receives the error. The client here is
// three lines; NewScripted does the same for tests, and fails them for protocol violations of
// clients.
func ExampleStartScripted() {
	server := xdstest.StartScripted(xdstest.ScriptedOptions{
		Report: func(violation string) { fmt.Println(violation) },
	})
	defer server.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	cfg, err := bootstrap.Parse("example", []byte(`{"xds_servers":
		[{"server_uri": "passthrough:///scripted", "channel_creds": [{"type": "insecure"}]}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := xds.Acquire(cfg, xds.Options{Linger: -1, DialOptions: []grpc.DialOption{grpc.WithContextDialer(server.Dial)}})
	defer client.Release()
	defer client.Watch("greeter", "greeter", watcher{})()

	asked := func() bool { return server.Stats(xdstest.LDS).Requests > 0 }
	if err := server.Wait(ctx, asked); err != nil {
		fmt.Println(err)
		return
	}
	server.Stream().Send(xdstest.LDS, "1", &listenerv3.Listener{Name: "greeter"})
	if err := server.Wait(ctx, func() bool { return server.Stats(xdstest.LDS).NACKs+server.Stats(xdstest.LDS).ACKs > 0 }); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(server.Stats(xdstest.LDS).Names)
	// Output: [greeter]
}

type watcher struct{}

func (watcher) Update(*picker.Config) {}
func (watcher) Error(error)           {}
