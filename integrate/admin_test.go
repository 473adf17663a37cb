// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"net"
	"testing"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	channelz "google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/csds"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestAdminServices checks that the services by which migration.md replaces admin.Register (A38)
// show a channel and its resources: grpcdebug requires one client in CSDS.
func TestAdminServices(t *testing.T) {
	control := xdstest.New(t, xdstest.Options{})
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	set(t, control, xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)}))
	cc := dialConfig(t, integrate.Config{Bootstrap: control.Bootstrap(t.Name())})
	kit.Must(t, integrate.WaitReady(t.Context(), cc, "/s/m"))

	server := grpc.NewServer()
	channelz.RegisterChannelzServiceToServer(server)
	kit.Must(t, csds.Register(server))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	go server.Serve(lis)
	t.Cleanup(server.Stop)
	admin, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	t.Cleanup(func() { admin.Close() })

	top, err := channelzpb.NewChannelzClient(admin).GetTopChannels(t.Context(), &channelzpb.GetTopChannelsRequest{})
	kit.Must(t, err)
	found := false
	for _, c := range top.GetChannel() {
		found = found || c.GetData().GetTarget() == cc.CanonicalTarget()
	}
	if !found {
		t.Errorf("channelz has no channel %s: %v", cc.CanonicalTarget(), top.GetChannel())
	}
	status, err := statusv3.NewClientStatusDiscoveryServiceClient(admin).FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	kit.Must(t, err)
	clients := map[string]int{}
	for _, config := range status.GetConfig() {
		clients[config.GetNode().GetId()] = len(config.GetGenericXdsConfigs())
	}
	if clients[t.Name()] != 4 {
		t.Errorf("CSDS has the resources %v of clients, want 4 of %s", clients, t.Name())
	}
}
