// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs_test

import (
	"context"
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/xds/lrs"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// Two channels report on the same cluster, each with counters of its own.
func ExampleReporter() {
	server, err := xdstest.Start(xdstest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Stop()
	conn, err := grpc.NewClient(server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	reporter := lrs.NewReporter(conn, &corev3.Node{Id: "me"}, lrs.Options{})
	one, stopOne := reporter.Report("cluster", "service")
	two, stopTwo := reporter.Report("cluster", "service")
	defer stopTwo()

	one.Drop("lottery").Add()
	two.Drop("lottery").Add()
	two.Overload().Add()
	stopOne() // its counts will still be reported

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := server.Wait(ctx, func() bool { return server.Loads("cluster", "service").Reports == 1 }); err != nil {
		fmt.Println(err)
		return
	}
	counts := server.Loads("cluster", "service")
	reporter.Close()
	fmt.Println(counts.Drops["lottery"], "by lottery,", counts.Dropped, "in all")
	// Output: 2 by lottery, 3 in all
}
