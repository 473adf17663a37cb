// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package doccheck

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestFailover is the test that integrate/docs/quickstart.md shows.
func TestFailover(t *testing.T) {
	control := xdstest.New(t, xdstest.Options{})
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{Register: func(s *grpc.Server) {
		healthpb.RegisterHealthServer(s, health.NewServer()) // register your own service here
	}})
	err := control.Set(xdstest.Service("greeter",
		xdstest.Locality{Priority: 0, Place: xdstest.Place{Zone: "a"}, Endpoints: xdstest.BackendEndpoints(backends[0])},
		xdstest.Locality{Priority: 1, Place: xdstest.Place{Zone: "b"}, Endpoints: xdstest.BackendEndpoints(backends[1])}))
	if err != nil {
		t.Fatal(err)
	}
	cc, err := integrate.Config{Bootstrap: control.Bootstrap("test")}.NewClient("xds:///greeter",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	call := func() {
		t.Helper()
		if _, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	call()
	backends[0].Stop()
	// The client connects to the second backend when it has lost the first.
	if err := xdstest.WaitConnected(t.Context(), backends[1]); err != nil {
		t.Fatal(err)
	}
	call()
	if first, second := backends[0].Calls(), backends[1].Calls(); first != 1 || second != 1 {
		t.Errorf("the backends got %d and %d RPCs, want 1 each", first, second)
	}
}

// TestFailoverIsOnPage: testing.md shows TestFailover, in less than 40 lines.
func TestFailoverIsOnPage(t *testing.T) {
	source, err := os.ReadFile("failover_test.go")
	if err != nil {
		t.Fatal(err)
	}
	begin := strings.Index(string(source), "func TestFailover(")
	function := string(source[begin:])
	function = function[:strings.Index(function, "\n}\n")+3]
	if !strings.Contains(read(t, "integrate/docs/testing.md"), function) {
		t.Errorf("testing.md does not have\n%s", function)
	}
	if n := strings.Count(function, "\n"); n >= 40 {
		t.Errorf("TestFailover has %d lines, want less than 40", n)
	}
}
