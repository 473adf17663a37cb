// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package csds_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/csds"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// world is a client of two control planes, "one" and "two", and a CSDS server with a connection
// to it, all in a bubble.
type world struct {
	t        *testing.T
	c        *xds.Client
	one, two *testplane.Scripted
	csds     statusv3.ClientStatusDiscoveryServiceClient
}

// inWorld runs a test in a bubble. features are the features of both control planes; others are
// the CSDS server's Others.
func inWorld(t *testing.T, features string, f func(t *testing.T, w *world), others ...statusv3.ClientStatusDiscoveryServiceServer) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, one: testplane.StartScripted(testplane.ScriptedOptions{}), two: testplane.StartScripted(testplane.ScriptedOptions{})}
		t.Cleanup(w.one.Stop)
		t.Cleanup(w.two.Stop)
		w.c = w.acquire(t.Name(), features)
		w.csds = dial(t, csds.NewServer(others...))
		f(t, w)
	})
}

// acquire returns a client of the control planes.
func (w *world) acquire(node, features string) *xds.Client {
	w.t.Helper()
	server := func(name string) string {
		return fmt.Sprintf(`{"server_uri": "passthrough:///%s", "channel_creds": [{"type": "insecure"}], "server_features": [%q]}`, name, features)
	}
	cfg, err := bootstrap.Parser{}.Parse("test", fmt.Appendf(nil, `{"xds_servers": [%s, %s], "node": {"id": %q, "cluster": "c", "metadata": {"k": "v"}},
		"authorities": {"auth": {}}}`, server("one"), server("two"), node))
	kit.Must(w.t, err)
	c := xds.Acquire(cfg, xds.Options{
		Linger: -1,
		Logger: slog.New(slog.DiscardHandler),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return map[string]*testplane.Scripted{"one": w.one, "two": w.two}[addr].Dial(ctx, addr)
		})},
	})
	w.t.Cleanup(func() {
		c.Release()
		synctest.Wait()
	})
	return c
}

// dial serves s and returns a client of it.
func dial(t *testing.T, s statusv3.ClientStatusDiscoveryServiceServer) statusv3.ClientStatusDiscoveryServiceClient {
	t.Helper()
	server := grpc.NewServer()
	statusv3.RegisterClientStatusDiscoveryServiceServer(server, s)
	n := xdstest.NewNetwork()
	lis, err := n.Listen("csds")
	kit.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(lis)
	}()
	cc, err := grpc.NewClient("passthrough:///csds", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(n.Dial))
	kit.Must(t, err)
	t.Cleanup(func() {
		cc.Close()
		server.Stop()
		<-done
	})
	return statusv3.NewClientStatusDiscoveryServiceClient(cc)
}

// A Watcher that ignores updates.
type nobody struct{}

func (nobody) Update(*picker.Config) {}
func (nobody) Error(error)           {}

// watch watches targets.
func (w *world) watch(targets ...string) {
	for _, t := range targets {
		w.c.View(nil, "").Watch(t, t, nobody{})
	}
	synctest.Wait()
}

// send sends a response with the resources.
func (w *world) send(typ, version string, resources ...proto.Message) {
	w.t.Helper()
	synctest.Wait()
	stream := w.one.Stream()
	if stream == nil {
		w.t.Fatal("no stream")
	}
	resp := &discoveryv3.DiscoveryResponse{TypeUrl: typ, VersionInfo: version, Nonce: version}
	for _, m := range resources {
		resp.Resources = append(resp.Resources, pack(w.t, m))
	}
	stream.Respond(resp)
	synctest.Wait()
}

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	if a, ok := m.(*anypb.Any); ok {
		return a
	}
	a, err := anypb.New(m)
	kit.Must(t, err)
	return a
}

// config returns the ClientConfig of the client with the node id, by both methods.
func (w *world) config(node string) *statusv3.ClientConfig {
	w.t.Helper()
	resp, err := w.csds.FetchClientStatus(w.t.Context(), &statusv3.ClientStatusRequest{})
	kit.Must(w.t, err)
	stream, err := w.csds.StreamClientStatus(w.t.Context())
	kit.Must(w.t, err)
	for range 2 {
		kit.Must(w.t, stream.Send(&statusv3.ClientStatusRequest{}))
		if streamed, err := stream.Recv(); err != nil || !proto.Equal(streamed, resp) {
			w.t.Errorf("streamed %v, %v; fetched %v", streamed, err, resp)
		}
	}
	kit.Must(w.t, stream.CloseSend())
	_, _ = stream.Recv()
	for _, c := range resp.Config {
		if c.Node.GetId() == node {
			return c
		}
	}
	w.t.Fatalf("no configuration of %q in %v", node, resp)
	return nil
}

// resource returns the CSDS status of a resource of the first client, or nil.
func (w *world) resource(typ, name string) *statusv3.ClientConfig_GenericXdsConfig {
	w.t.Helper()
	for _, g := range w.config(w.c.Node().GetId()).GenericXdsConfigs {
		if g.TypeUrl == typ && g.Name == name {
			return g
		}
	}
	return nil
}

// has reports whether s contains all texts.
func has(s string, texts ...string) bool {
	for _, t := range texts {
		if !strings.Contains(s, t) {
			return false
		}
	}
	return true
}
