// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/xdstest"
)

const document = `{"xds_servers": [{"server_uri": "kubernetes:"}], "node": {"id": "test"}}`

// follower records the endpoints in use by an XdsClient's target.
type follower struct {
	mu    sync.Mutex
	addrs []string // sorted, the draining ones in parentheses
	errs  []error
}

func (f *follower) Update(cfg *picker.Config) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addrs = nil
	for _, c := range cfg.Clusters {
		for _, l := range c.Leaves {
			for _, p := range l.Priorities {
				for _, locality := range p.Localities {
					for _, e := range locality.Endpoints.All() {
						addr := e.Addr.String()
						if e.Health == picker.Draining {
							addr = "(" + addr + ")"
						}
						f.addrs = append(f.addrs, addr)
					}
				}
			}
		}
	}
	slices.Sort(f.addrs)
}

func (f *follower) Error(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

func (f *follower) is(want []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Equal(f.addrs, want)
}

// fleet is a service of many pods in slices, as the controller of Kubernetes would keep them.
type fleet struct {
	slices []*discoveryv1.EndpointSlice
}

// want returns the form of follower.addrs.
func (f *fleet) want() []string {
	var list []string
	for _, s := range f.slices {
		for _, e := range s.Endpoints {
			addr := netip.AddrPortFrom(netip.MustParseAddr(e.Addresses[0]), 9000).String()
			switch {
			case *e.Conditions.Ready:
				list = append(list, addr)
			case *e.Conditions.Terminating && *e.Conditions.Serving:
				list = append(list, "("+addr+")")
			}
		}
	}
	slices.Sort(list)
	return list
}

// TestThousandPods checks that each change of a service with 1,000 pods in 12 slices is in use
// within a second after its event, with all other endpoints.
func TestThousandPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := xdstest.NewNetwork()
		lis, err := network.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		api := newAPIServer()
		api.serve(t, lis)
		replaceConfig(t, &rest.Config{Host: "http://" + lis.Addr().String(), Dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return network.Dial(ctx, addr)
		}})
		f := &fleet{}
		for i := range 12 {
			f.slices = append(f.slices, orders(fmt.Sprint("orders-", i)))
		}
		for i := range 1000 {
			s := f.slices[i%12]
			s.Endpoints = append(s.Endpoints, aPod(fmt.Sprintf("10.1.%d.%d", i/250, i%250)))
		}
		api.apply(grpcService("shop", "orders"))
		for _, s := range f.slices {
			api.apply(s)
		}

		cfg, err := bootstrap.Parser{}.Parse("test", []byte(document))
		if err != nil {
			t.Fatal(err)
		}
		c := xds.Acquire(cfg, xds.Options{Linger: -1})
		defer c.Release()
		watcher := &follower{}
		defer c.View(nil, "").Watch(ordersGRPC, ordersGRPC, watcher)()
		after(latestStart)
		if want := f.want(); len(want) != 1000 || !watcher.is(want) {
			t.Fatalf("%d endpoints in use at first, want 1000; errors: %v", len(watcher.addrs), watcher.errs)
		}

		random := rand.New(rand.NewPCG(4, 2))
		for i := range 40 {
			s := f.slices[random.IntN(12)]
			k := random.IntN(len(s.Endpoints))
			switch i % 4 {
			case 0:
				s.Endpoints = append(s.Endpoints, aPod(fmt.Sprintf("10.2.0.%d", i)))
			case 1:
				s.Endpoints = slices.Delete(s.Endpoints, k, k+1)
			case 2:
				s.Endpoints[k] = podIn(s.Endpoints[k].Addresses[0], false, true, true)
			case 3:
				s.Endpoints[k] = podIn(s.Endpoints[k].Addresses[0], false, false, false)
			}
			api.apply(s)
			after(time.Second)
			if want := f.want(); !watcher.is(want) {
				t.Fatalf("change %d is not in use after a second: %d endpoints, want %d", i, len(watcher.addrs), len(want))
			}
		}
		// Changes of all slices, while other events keep coming.
		for i, s := range f.slices {
			s.Endpoints = append(s.Endpoints, aPod(fmt.Sprintf("10.3.0.%d", i)))
			api.apply(s)
		}
		want := f.want()
		for i := range 19 {
			after(50 * time.Millisecond)
			api.apply(aSlice("shop", "orders", "more", "grpc", 9000, podIn(fmt.Sprintf("10.4.0.%d", i), false, false, false)))
		}
		after(50 * time.Millisecond)
		if !watcher.is(want) {
			t.Errorf("changes of all slices are not in use after a second of events")
		}
		if len(watcher.errs) > 0 {
			t.Errorf("errors: %v", watcher.errs)
		}
	})
}

func replaceConfig(t *testing.T, cfg *rest.Config) {
	before := loadConfig
	loadConfig = func() (*rest.Config, error) { return cfg, nil }
	t.Cleanup(func() { loadConfig = before })
}

// TestRollingRestart replaces 50 pods under load, five at a time: a new pod becomes ready, an old
// one terminates and, once it gets no more RPCs, ends without grace. Everything is on
// loopback, and the API server is found by KUBECONFIG.
func TestRollingRestart(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	api := newAPIServer()
	api.serve(t, lis)
	kubeconfig := filepath.Join(t.TempDir(), "config")
	err = os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": [{"name": "test", "cluster": {"server": "http://%s"}}],
		"contexts": [{"name": "test", "context": {"cluster": "test"}}]}`, lis.Addr()), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")

	// Pods differ in their ports, since they share an address. Each port is a slice of its own.
	const pods, surge = 50, 5
	backends := xdstest.NewBackends(t, 2*pods+1, xdstest.BackendOptions{})
	show := func(b *xdstest.Backend, ready, terminating bool) {
		addr := b.Addr()
		api.apply(aSlice("shop", "orders", fmt.Sprint("orders-", addr.Port()), "grpc", int32(addr.Port()), podIn(addr.Addr().String(), ready, true, terminating)))
	}
	gone := func(b *xdstest.Backend) {
		api.remove(aSlice("shop", "orders", fmt.Sprint("orders-", b.Addr().Port()), "grpc", int32(b.Addr().Port())))
	}
	api.apply(aService("shop", "orders", corev1.ServicePort{Name: "grpc", Port: 80}))
	for _, b := range backends[:pods] {
		show(b, true, false)
	}
	backends, unready := backends[:2*pods], backends[2*pods]
	show(unready, false, false)
	cc, err := integrate.Config{Bootstrap: []byte(document), Linger: -1}.NewClient("xds:///"+ordersGRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var calls atomic.Int64
	var failure atomic.Pointer[error]
	client := testgrpc.NewTestServiceClient(cc)
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}); err != nil {
					failure.CompareAndSwap(nil, &err)
				}
				calls.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	wait := func(what string, done func() bool) {
		for !done() {
			if ctx.Err() != nil {
				t.Fatalf("timeout: %s", what)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	wait("the first RPCs", func() bool { return calls.Load() > 100 })
	for i := 0; i < pods; i += surge {
		fresh, old := backends[pods+i:pods+i+surge], backends[i:i+surge]
		for _, b := range fresh {
			show(b, true, false)
		}
		for _, b := range old {
			show(b, false, true)
		}
		// Round robin reaches each endpoint in use among 300 RPCs.
		since, served := calls.Load(), int64(-1)
		wait("terminating pods are in use", func() bool {
			n := int64(0)
			for _, b := range old {
				n += int64(b.Calls())
			}
			if n != served {
				since, served = calls.Load(), n
			}
			return calls.Load() > since+300
		})
		for _, b := range old {
			b.Stop()
			gone(b)
		}
	}
	if err := xdstest.WaitConnected(ctx, backends[pods:]...); err != nil {
		t.Error(err)
	}
	close(stop)
	load.Wait()
	if err := failure.Load(); err != nil {
		t.Errorf("an RPC failed: %v", *err)
	}
	if n := unready.Calls(); n > 0 {
		t.Errorf("%d RPCs to a pod that is not ready", n)
	}
	t.Logf("%d RPCs", calls.Load())
}

// TestOverlay checks that an overlay can patch the default cluster, by the target's name, and that the status and
// Explain name the source of the resources.
func TestOverlay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := xdstest.NewNetwork()
		lis, err := network.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		api := newAPIServer()
		api.serve(t, lis)
		replaceConfig(t, &rest.Config{Host: "http://" + lis.Addr().String(), Dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return network.Dial(ctx, addr)
		}})
		b := xdstest.NewBackends(t, 1, xdstest.BackendOptions{Listen: network.Listen})[0]
		api.apply(grpcService("shop", "orders"), aSlice("shop", "orders", "a", "grpc", int32(b.Addr().Port()), aPod(b.Addr().Addr().String())))
		cc, err := integrate.Config{Bootstrap: []byte(document), Linger: -1, Overlay: []byte(`{"patches": [
			{"resource": "cluster", "name": "*.shop:grpc", "merge": {"lb_policy": "LEAST_REQUEST"}}]}`),
		}.NewClient("xds:///"+ordersGRPC, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(network.Dial))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		if _, err := testgrpc.NewTestServiceClient(cc).EmptyCall(t.Context(), &testgrpc.Empty{}); err != nil {
			t.Fatal(err)
		}
		e, err := integrate.Explain(t.Context(), cc, "/s/m")
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprintf("%+v", e); !strings.Contains(strings.ToLower(text), "least_request") {
			t.Errorf("the overlay has no effect: %s", text)
		}

		// Both name the source of each resource.
		status, err := integrate.StatusOf(cc)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range status.Resources {
			if r.Server != "kubernetes:" {
				t.Errorf("status: %s %s is from %q, want \"kubernetes:\"", r.Type, r.Name, r.Server)
			}
		}
		want := "Resources from kubernetes:: Listener NAME, RouteConfiguration NAME, Cluster NAME, ClusterLoadAssignment NAME"
		if text := strings.Join(strings.Fields(e.String()), " "); len(status.Resources) != 4 || !strings.Contains(text, strings.ReplaceAll(want, "NAME", ordersGRPC)) {
			t.Errorf("%d resources in the status; Explain: %s", len(status.Resources), text)
		}
	})
}
