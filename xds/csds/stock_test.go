// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package csds_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/admin"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds"
	stockcsds "google.golang.org/grpc/xds/csds"

	"github.com/xdslb/xdslb/bench/kit"
	ours "github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/csds"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestBesideAdmin checks that grpc-go's admin services, which have stock's CSDS, are not
// touched, and that ours is refused with an error.
func TestBesideAdmin(t *testing.T) {
	s := grpc.NewServer()
	defer s.Stop()
	cleanup, err := admin.Register(s)
	kit.Must(t, err)
	defer cleanup()
	if err := csds.Register(s); err == nil || !strings.Contains(err.Error(), "google.golang.org/grpc/admin") {
		t.Errorf("error = %v", err)
	}
	server, err := xds.NewGRPCServer()
	if err == nil {
		defer server.Stop()
		err = csds.Register(server)
	}
	if err != nil && !strings.Contains(err.Error(), "bootstrap") {
		t.Errorf("with an xDS server: %v", err)
	}
}

// besideStock is the environment variable that grpc-go reads its bootstrap from, before
// any test runs.
const besideStock = "GRPC_XDS_BOOTSTRAP_CONFIG"

// TestBesideStock checks that a process that uses grpc-go's xDS and ours shows both by
// one service. It runs itself with a bootstrap for grpc-go.
func TestBesideStock(t *testing.T) {
	if os.Getenv(besideStock) != "" {
		showBoth(t, []byte(os.Getenv(besideStock)))
		return
	}
	cp := xdstest.New(t, xdstest.Options{})
	kit.Must(t, cp.Set(xdstest.Service("svc")))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestBesideStock$", "-test.v")
	cmd.Env = append(os.Environ(), besideStock+"="+string(cp.Bootstrap("both")))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

// showBoth is TestBesideStock in the process that grpc-go has a bootstrap in.
func showBoth(t *testing.T, doc []byte) {
	stockChannel, err := grpc.NewClient("xds:///svc", grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	defer stockChannel.Close()
	stockChannel.Connect()
	cfg, err := bootstrap.Parser{}.Parse("test", doc)
	kit.Must(t, err)
	c := ours.Acquire(cfg, ours.Options{Linger: -1})
	defer c.Release()
	defer c.View(nil, "").Watch("svc", "svc", nobody{})()
	stock, err := stockcsds.NewClientStatusDiscoveryServer()
	kit.Must(t, err)
	client := dial(t, csds.NewServer(stock))
	// grpc-go's client has no notification for a received resource.
	kit.WaitFor(t, "all four resources of our client and of grpc-go's", func() bool {
		resp, err := client.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
		kit.Must(t, err)
		var agents []string
		for _, c := range resp.Config {
			if len(c.GenericXdsConfigs) == 4 && !slices.ContainsFunc(c.GenericXdsConfigs, func(g *statusv3.ClientConfig_GenericXdsConfig) bool { return g.XdsConfig == nil }) {
				agents = append(agents, c.Node.GetUserAgentName())
			}
		}
		return slices.Equal(agents, []string{"xdslb", "gRPC Go"})
	})
}
