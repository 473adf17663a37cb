// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

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
	ours, err := integrate.DialOptions(cfg)
	kit.Must(t, err)
	cc, err := grpc.NewClient("xds:///"+target, append(append(ours, grpc.WithTransportCredentials(insecure.NewCredentials())), opts...)...)
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

// TestSilentControlPlane: if a control plane accepts connections and sends nothing, RPCs fail with
// an error that names it before their deadline.
func TestSilentControlPlane(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	t.Cleanup(func() { _ = lis.Close() })
	boot := fmt.Sprintf(`{"xds_servers":[{"server_uri":%q,"channel_creds":[{"type":"insecure"}]}],"node":{"id":"n"}}`, lis.Addr())
	cc := dial(t, []byte(boot))
	if _, err = call(t, cc); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), lis.Addr().String()) {
		t.Errorf("RPC failed with %v, want UNAVAILABLE naming the server before its deadline", err)
	}
}

// TestUnknownTarget: if an RPC's deadline expires before the control plane's time to send the
// Listener, its error names the missing resource and the server.
func TestUnknownTarget(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		control := b.control()
		set(t, control, xdstest.Service("another target"))
		cc := b.dial(b.config(control))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		stream := func() error {
			_, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx)
			return err
		}
		unary := func() error {
			_, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{})
			return err
		}
		for _, rpc := range []func() error{unary, stream} {
			err := rpc()
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("RPC error %v, want DEADLINE_EXCEEDED", err)
			}
			for _, want := range []string{"waiting for Listener", target, control.Addr(), t.Name()} {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("RPC error %q lacks %q", err, want)
				}
			}
		}
	})
}

// TestRejectedUpdate: a resource that is not valid is rejected with an error
// that names it, the field and the rule, and the last good one stays in use.
func TestRejectedUpdate(t *testing.T) {
	backends, control := start(t, 1)
	good := service(backends...)
	set(t, control, good)
	cc := dial(t, control.Bootstrap("n"))
	succeed(t, cc)
	bad := service(backends...)
	bad.Endpoints[0].Endpoints[0].LbEndpoints[0].LoadBalancingWeight = wrapperspb.UInt32(0)
	set(t, control, bad)
	ctx := minute(t)
	detail, err := control.WaitNACK(ctx, xdstest.EDS)
	kit.Must(t, err)
	for _, want := range []string{target, "load_balancing_weight", "0"} {
		if !strings.Contains(detail, want) {
			t.Errorf("error_detail %q lacks %q", detail, want)
		}
	}
	for range 10 {
		if _, err := call(t, cc); err != nil {
			t.Fatalf("RPC after a rejected update: %v", err)
		}
	}
}

// TestRollingRestart replaces 100 backends one after the other under load,
// through EDS updates: no RPC fails.
func TestRollingRestart(t *testing.T) {
	n := 100
	if testing.Short() {
		n = 20
	}
	backends, control := start(t, n)
	push := func() *endpointv3.ClusterLoadAssignment {
		r := service(backends...)
		set(t, control, r)
		return r.Endpoints[0]
	}
	push()
	cc := dial(t, control.Bootstrap("n"))
	succeed(t, cc)
	ctx, cancel := context.WithCancel(context.Background())
	failures := make(chan error, 1)
	var workers [4]atomic.Int64 // RPCs that ended
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := call(t, cc); err != nil {
					select {
					case failures <- err:
					default:
					}
				}
				workers[i].Add(1)
			}
		})
	}
	// twoMore waits until each worker has made an RPC from its beginning to its end.
	twoMore := func() {
		for i := range workers {
			seen := workers[i].Load()
			kit.WaitFor(t, "an RPC that ends", func() bool { return workers[i].Load() >= seen+2 })
		}
	}
	for i := range backends {
		old := backends[i]
		backends[i] = xdstest.NewBackends(t, 1, xdstest.BackendOptions{})[0]
		push()
		kit.WaitFor(t, "an update that picks go by", func() bool {
			x, err := integrate.Explain(ctx, cc, "/grpc.testing.TestService/UnaryCall")
			return err == nil && !x.Pending && !strings.Contains(x.String(), old.Addr().String()) && strings.Contains(x.String(), backends[i].Addr().String())
		})
		// Removed endpoints get no new RPC from here on; RPCs in progress may finish.
		twoMore()
		calls := old.Calls()
		twoMore()
		if n := old.Calls() - calls; n != 0 {
			t.Errorf("a removed backend got %d RPCs", n)
		}
		old.Stop()
	}
	cancel()
	wg.Wait()
	var calls int64
	for i := range workers {
		calls += workers[i].Load()
	}
	select {
	case err := <-failures:
		t.Errorf("an RPC failed during the rolling restart: %v", err)
	default:
		t.Logf("%d RPCs over %d restarts", calls, n)
	}
}

// TestSeveralAddresses: an endpoint with additional addresses (A61) is reached
// through any of them, is one endpoint for its weight, and keeps its connection
// when the order of its addresses changes.
func TestSeveralAddresses(t *testing.T) {
	backends, control := start(t, 3)
	resources := func(first, second *xdstest.Backend) xdstest.Resources {
		r := service(first, backends[2])
		r.Endpoints[0].Endpoints[0].LbEndpoints[0].GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{
			Address: xdstest.Endpoints("", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(second)}).Endpoints[0].LbEndpoints[0].GetEndpoint().GetAddress(),
		}}
		return r
	}
	backends[0].Stop() // only the additional address answers
	set(t, control, resources(backends[0], backends[1]))
	cc := dial(t, control.Bootstrap("n"))
	counts := map[string]int{}
	for counts[backends[1].Addr().String()] == 0 || counts[backends[2].Addr().String()] == 0 {
		got, err := call(t, cc, grpc.WaitForReady(true))
		kit.Must(t, err)
		counts[got]++
	}
	clear(counts)
	set(t, control, resources(backends[1], backends[0]))
	ctx := minute(t)
	kit.Must(t, control.WaitACK(ctx, xdstest.EDS))
	for range 100 {
		got, err := call(t, cc)
		if err != nil {
			t.Fatalf("RPC after the addresses changed places: %v", err)
		}
		counts[got]++
	}
	if n := counts[backends[1].Addr().String()]; n < 49 || n > 51 {
		t.Errorf("the endpoint with two addresses got %d of 100 RPCs, want half", n)
	}

	// The address in use goes away, the other comes up.
	kit.Must(t, backends[0].Start())
	backends[1].Stop()
	clear(counts)
	for begin := time.Now(); counts[backends[0].Addr().String()] == 0; {
		got, err := call(t, cc, grpc.WaitForReady(true)) // may fail on the connection that was cut
		if time.Since(begin) > time.Minute {
			t.Fatalf("the other address is not reached: %v", err)
		}
		counts[got]++
	}
}

// TestWaitForReady: RPCs that wait for ready and were made while the control
// plane could not be reached, or before it had the resource, all succeed once
// the configuration arrives.
func TestWaitForReady(t *testing.T) {
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	resources := service(backends...)
	calls := func(cc *grpc.ClientConn) (finished func()) {
		const n = 20
		done := make(chan error, n)
		for range n {
			go func() {
				_, err := call(t, cc, grpc.WaitForReady(true))
				done <- err
			}()
		}
		return func() {
			t.Helper()
			for range n {
				if err := <-done; err != nil {
					t.Errorf("an RPC that waits for ready failed: %v", err)
				}
			}
		}
	}
	t.Run("no control plane", func(t *testing.T) {
		control := xdstest.New(t, xdstest.Options{})
		set(t, control, resources)
		control.Stop()
		cc := dial(t, control.Bootstrap("a"))
		finished := calls(cc)
		if _, err := call(t, cc); err == nil { // by then they have been told to wait
			t.Error("an RPC succeeded without a control plane")
		}
		kit.Must(t, control.Restart())
		finished()
	})
	t.Run("no resource", func(t *testing.T) {
		control := xdstest.New(t, xdstest.Options{})
		cc := dial(t, control.Bootstrap("b"))
		finished := calls(cc)
		ctx := minute(t)
		kit.Must(t, control.Wait(ctx, func() bool { return len(control.Stats(xdstest.LDS).Names) > 0 }))
		set(t, control, resources)
		finished()
	})
}

// TestManyTargets: fifty targets of one bootstrap share one ADS stream, and one
// copy of each resource (D4).
func TestManyTargets(t *testing.T) {
	backends, control := start(t, 1)
	shared := xdstest.Service("shared", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
	const n = 50
	for i := range n {
		shared.Listeners = append(shared.Listeners, xdstest.Listener(fmt.Sprintf("t%d", i), "shared"))
	}
	set(t, control, shared)
	ours, err := integrate.DialOptions(integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1})
	kit.Must(t, err)
	for i := range n {
		cc, err := grpc.NewClient(fmt.Sprintf("xds:///t%d", i), append(ours, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		kit.Must(t, err)
		t.Cleanup(func() { _ = cc.Close() })
		succeed(t, cc, grpc.WaitForReady(true))
	}
	if open, total := control.Streams(); open != 1 || total != 1 {
		t.Errorf("%d streams open of %d, want one", open, total)
	}
	if names := control.Stats(xdstest.CDS).Names; len(names) != 1 {
		t.Errorf("clusters %q are subscribed to, want one", names)
	}
}

// TestRedial: channels that are made, used and closed leave nothing behind; the
// package's TestMain counts the goroutines.
func TestRedial(t *testing.T) {
	backends, control := start(t, 2)
	set(t, control, service(backends...))
	n := 500
	if testing.Short() {
		n = 50
	}
	keep := dial(t, control.Bootstrap("n"))
	succeed(t, keep, grpc.WaitForReady(true))
	for range n {
		cc := dial(t, control.Bootstrap("n"))
		succeed(t, cc, grpc.WaitForReady(true))
		kit.Must(t, cc.Close())
	}
	if open, total := control.Streams(); open != 1 || total != 1 {
		t.Errorf("%d streams open of %d, want one for all channels", open, total)
	}
}
