// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest_test

import (
	"fmt"
	"net/netip"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// A control plane that serves one service with two localities.
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
	if err := server.Set(resources); err != nil {
		fmt.Println(err)
		return
	}
	open, total := server.Streams()
	fmt.Println(len(server.Bootstrap("me")) > 0, open, total)
	// Output: true 0 0
}
