// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestMain makes an RPC on a first channel, which fails. The first channel of a process examines gRPC by RPCs with
// retries. In a bubble their backoff never ends if another goroutine waits for the mutex meanwhile: see
// doneIdentifiesRPC in package balancer.
func TestMain(m *testing.M) {
	cfg := integrate.Config{Linger: -1, Bootstrap: []byte(`{"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}]}`)}
	cc, err := cfg.NewClient("xds:///first", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	_ = cc.Invoke(context.Background(), "/s/m", nil, nil)
	_ = cc.Close()
	leak.VerifyTestMain(m)
}

const target = "e2e.xdslb.test"

// dial returns a channel to the target through the control plane, with
// everything that DialOptions has.
func dial(t testing.TB, bootstrap []byte, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return dialConfig(t, integrate.Config{Bootstrap: bootstrap, Linger: -1}, opts...)
}

// dialConfig is dial with a configuration.
func dialConfig(t testing.TB, cfg integrate.Config, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return dialTo(t, cfg, target, opts...)
}

// dialTo is dialConfig to a target. The interceptors of opts are behind those of DialOptions.
func dialTo(t testing.TB, cfg integrate.Config, name string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	ours, err := integrate.DialOptions(cfg)
	kit.Must(t, err)
	return closing(t, name, append(ours, opts...))
}

// dialBare returns a channel with a resolver alone, without interceptors unless opts have some.
func dialBare(t testing.TB, bootstrap []byte, name string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	b, err := integrate.NewBuilder(integrate.Config{Bootstrap: bootstrap, Linger: -1})
	kit.Must(t, err)
	return closing(t, name, append([]grpc.DialOption{grpc.WithResolvers(b)}, opts...))
}

// closing returns a channel that is closed at the end of the test.
func closing(t testing.TB, name string, opts []grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("xds:///"+name, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)...)
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// call makes an RPC and returns the backend that answered.
func call(t testing.TB, cc *grpc.ClientConn, opts ...grpc.CallOption) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	res, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{}, opts...)
	return res.GetHostname(), err
}

// succeed makes an RPC, which has to succeed, and returns the backend that answered.
func succeed(t testing.TB, cc *grpc.ClientConn, opts ...grpc.CallOption) string {
	t.Helper()
	backend, err := call(t, cc, opts...)
	if err != nil {
		t.Fatalf("an RPC failed: %v", err)
	}
	return backend
}

// minute returns a context that ends after a minute, or with the test.
func minute(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start starts n backends, and a control plane without resources.
func start(t testing.TB, n int) ([]*xdstest.Backend, *xdstest.Server) {
	t.Helper()
	return xdstest.NewBackends(t, n, xdstest.BackendOptions{}), xdstest.New(t, xdstest.Options{})
}

// service returns the resources of the target, with the backends in one locality.
func service(backends ...*xdstest.Backend) xdstest.Resources {
	return xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
}

// addAddress gives an endpoint another address (A61).
func addAddress(e *endpointv3.LbEndpoint, addr netip.AddrPort) {
	other := xdstest.Endpoints("", xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: addr}}}).Endpoints[0].LbEndpoints[0]
	e.GetEndpoint().AdditionalAddresses = append(e.GetEndpoint().AdditionalAddresses, &endpointv3.Endpoint_AdditionalAddress{Address: other.GetEndpoint().GetAddress()})
}

func set(t testing.TB, s *xdstest.Server, r xdstest.Resources) {
	t.Helper()
	kit.Must(t, s.Set(r))
}

// TestBootstrapErrors: if a bootstrap is missing, unreadable or invalid, NewClient and NewBuilder
// return an error at once that names the place and the cause.
func TestBootstrapErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "bootstrap.json")
	tests := []struct {
		name, file, content string
		want                []string
	}{
		{"nothing set", "", "", []string{"GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG"}},
		{"unreadable file", missing, "", []string{missing}},
		{"not JSON", "", "{", []string{"GRPC_XDS_BOOTSTRAP_CONFIG", "line 1"}},
		{"no servers", "", `{"xds_servers":[]}`, []string{"GRPC_XDS_BOOTSTRAP_CONFIG", "$.xds_servers"}},
		{"no credentials", "", `{"xds_servers":[{"server_uri":"x:1","channel_creds":[{"type":"unknown"}]}]}`, []string{"$.xds_servers[0].channel_creds"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("GRPC_XDS_BOOTSTRAP", tt.file)
			t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", tt.content)
			_, err := integrate.NewClient("xds:///x", grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err == nil {
				t.Fatal("NewClient succeeded")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("NewClient error %q lacks %q", err, want)
				}
			}
			if _, err := integrate.NewBuilder(integrate.Config{}); err == nil {
				t.Error("NewBuilder succeeded")
			}
		})
	}
}

// TestNoControlPlane: without a control plane an RPC fails within a second, with an error that
// names the server, the resource and the cause, not with a bare deadline; and the channel recovers
// once there is one.
func TestNoControlPlane(t *testing.T) { inBubble(t, checkNoControlPlane) }

func checkNoControlPlane(t *testing.T, b *bubble) {
	control := b.control()
	set(t, control, service(b.backends(1)...))
	control.Stop()
	cc, begin := b.dial(b.config(control)), time.Now()
	_, err := call(t, cc)
	if took := time.Since(begin); status.Code(err) != codes.Unavailable || took > time.Second {
		t.Errorf("RPC error = %v after %v, want UNAVAILABLE within a second", err, took)
	}
	for _, want := range []string{control.Addr(), target, t.Name(), "connection refused"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("RPC error %q lacks %q", err, want)
		}
	}
	kit.Must(t, control.Restart())
	if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
		t.Errorf("RPC after the control plane came up: %v", err)
	}
}
