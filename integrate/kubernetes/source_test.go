// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// recorder is a stream that records deliveries.
type recorder struct {
	mu         sync.Mutex
	subscribed []string // of all types
	change     chan struct{}
	resources  map[string]map[string]proto.Message
	pending    map[string][]string
	deliveries map[string][]time.Time // by type
	failures   []string
	warnings   []string
}

func (r *recorder) Names(string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.subscribed)
}

func (r *recorder) Changed() <-chan struct{} { return r.change }

func (r *recorder) subscribe(names ...string) {
	r.mu.Lock()
	r.subscribed = names
	r.mu.Unlock()
	r.change <- struct{}{}
}

func (r *recorder) Deliver(typeURL string, resources map[string]proto.Message, pending ...string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resources[typeURL], r.pending[typeURL] = resources, pending
	r.deliveries[typeURL] = append(r.deliveries[typeURL], time.Now())
	return nil
}

func (r *recorder) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprint(err))
}

func (r *recorder) warn(_ string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warnings = append(r.warnings, err.Error())
}

// addresses returns the addresses of a name's endpoints, or "none" if there is no resource.
func (r *recorder) addresses(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	cla, ok := r.resources[endpointType][name].(*endpointv3.ClusterLoadAssignment)
	if !ok {
		return "none"
	}
	var list []string
	for _, l := range cla.Endpoints {
		for _, e := range l.LbEndpoints {
			list = append(list, l.Locality.Region+l.Locality.Zone+e.GetEndpoint().Address.GetSocketAddress().Address)
		}
	}
	return strings.Join(list, " ")
}

// inBubble runs a source against an API server in virtual time.
func inBubble(t *testing.T, o options, test func(t *testing.T, api *apiServer, out *recorder)) {
	synctest.Test(t, func(t *testing.T) {
		network := xdstest.NewNetwork()
		lis, err := network.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		api := newAPIServer()
		api.serve(t, lis)
		c, err := newClients(&rest.Config{Host: "http://" + lis.Addr().String(), Dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return network.Dial(ctx, addr)
		}})
		if err != nil {
			t.Fatal(err)
		}
		out := &recorder{change: make(chan struct{}, 10), resources: map[string]map[string]proto.Message{}, pending: map[string][]string{}, deliveries: map[string][]time.Time{}}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = newSource(c, o, out.warn).run(ctx, out) }()
		defer func() { cancel(); <-done }()
		test(t, api, out)
	})
}

// after waits for virtual time and for the reaction to it.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *recorder) want(t *testing.T, name, want string) {
	t.Helper()
	if got := r.addresses(name); got != want {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

func grpcService(namespace, name string) *corev1.Service {
	return aService(namespace, name, corev1.ServicePort{Name: "grpc", Port: 80})
}

func orders(name string, addrs ...string) *discoveryv1.EndpointSlice {
	slice := aSlice("shop", "orders", name, "grpc", 9000)
	for _, a := range addrs {
		slice.Endpoints = append(slice.Endpoints, aPod(a))
	}
	return slice
}

const ordersGRPC = "orders.shop:grpc"

func TestSource(t *testing.T) {
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain=%v", plain), func(t *testing.T) {
			inBubble(t, options{}, func(t *testing.T, api *apiServer, out *recorder) {
				api.plain = plain
				api.apply(grpcService("shop", "orders"), orders("a", "10.0.0.1"), orders("b", "10.0.0.2"), grpcService("shop", "other"))
				out.subscribe(ordersGRPC, "none.shop:grpc")
				after(latestStart)
				out.want(t, ordersGRPC, "10.0.0.1 10.0.0.2")
				out.want(t, "none.shop:grpc", "none")
				for _, typ := range types {
					if out.resources[typ][ordersGRPC] == nil {
						t.Errorf("no %s", typ)
					}
				}
				if want := []string{"service shop/none does not exist"}; !slices.Equal(out.warnings, want) {
					t.Errorf("warnings: %q, want %q", out.warnings, want)
				}
				if len(out.failures) > 0 {
					t.Errorf("failures: %q", out.failures)
				}

				// Only one of the slices changes.
				api.apply(orders("b", "10.0.0.3"))
				after(time.Second)
				out.want(t, ordersGRPC, "10.0.0.1 10.0.0.3")
				api.remove(orders("a"))
				after(time.Second)
				out.want(t, ordersGRPC, "10.0.0.3")
				api.remove(grpcService("shop", "orders"))
				after(time.Second)
				out.want(t, ordersGRPC, "none")
				api.apply(grpcService("shop", "orders"))
				after(time.Second)
				out.want(t, ordersGRPC, "10.0.0.3")

				// A slice moves to another service.
				moved := orders("b", "10.0.0.3")
				moved.Labels[discoveryv1.LabelServiceName] = "other"
				api.apply(moved)
				after(time.Second)
				out.want(t, ordersGRPC, "")
			})
		})
	}
}

// Only changed types are delivered, so events without effect cause no work for the client.
func TestDeliverChangesOnly(t *testing.T) {
	inBubble(t, options{}, func(t *testing.T, api *apiServer, out *recorder) {
		api.apply(grpcService("shop", "orders"), orders("a", "10.0.0.1"))
		out.subscribe(ordersGRPC)
		after(latestStart)
		clear(out.deliveries)
		api.apply(orders("a", "10.0.0.1"), aSlice("shop", "other", "c", "grpc", 1, aPod("10.0.0.9")))
		after(time.Second)
		if len(out.deliveries) != 0 {
			t.Errorf("deliveries without a change: %v", out.deliveries)
		}
		api.apply(orders("a", "10.0.0.2"))
		after(time.Second)
		if got := slices.Collect(maps.Keys(out.deliveries)); !slices.Equal(got, []string{endpointType}) {
			t.Errorf("delivered %q, want only endpoints", got)
		}
		clear(out.deliveries)
		out.subscribe(ordersGRPC, "nonsense")
		after(time.Second)
		if len(out.deliveries[listenerType]) != 1 {
			t.Error("no delivery says that a name does not exist that was subscribed to late")
		}
	})
}

// Events within 100 ms are one update, and an update is late by at most 900 ms.
func TestDebounce(t *testing.T) {
	inBubble(t, options{}, func(t *testing.T, api *apiServer, out *recorder) {
		api.apply(grpcService("shop", "orders"), orders("a", "10.0.0.1"))
		out.subscribe(ordersGRPC)
		after(latestStart)
		clear(out.deliveries)

		start := time.Now()
		for i := range 5 {
			api.apply(orders("a", fmt.Sprint("10.0.1.", i)))
			after(50 * time.Millisecond)
		}
		after(time.Second)
		if got := out.deliveries[endpointType]; len(got) != 1 || got[0].Sub(start) != 300*time.Millisecond {
			t.Errorf("deliveries after a burst: %v, want one 100 ms after its end", got)
		}

		clear(out.deliveries)
		start = time.Now()
		for i := range 60 { // three seconds of events every 50 ms
			api.apply(orders("a", fmt.Sprint("10.0.2.", i)))
			after(50 * time.Millisecond)
		}
		after(time.Second)
		last := start
		for _, at := range out.deliveries[endpointType] {
			if d := at.Sub(last); d > time.Second {
				t.Errorf("%v without a delivery", d)
			}
			last = at
		}
		if n := len(out.deliveries[endpointType]); n < 3 || n > 5 {
			t.Errorf("%d deliveries in three seconds of events", n)
		}
		out.want(t, ordersGRPC, "10.0.2.59")
	})
}

// A watch that ends is resumed from the version of its last event or bookmark, without a list.
// If the server has forgotten that version, the objects are listed again.
func TestResumeWatch(t *testing.T) {
	inBubble(t, options{}, func(t *testing.T, api *apiServer, out *recorder) {
		api.apply(grpcService("shop", "orders"), orders("a", "10.0.0.1")) // versions 2 and 3
		out.subscribe(ordersGRPC)
		after(latestStart)
		if got, want := api.take(), []string{"endpointslices: streamed list", "services: streamed list"}; !slices.Equal(got, want) {
			t.Errorf("requests: %q, want %q", got, want)
		}
		api.apply(orders("a", "10.0.0.2"))               // 4
		api.bookmark("/api/v1/namespaces/shop/services") // 5
		after(2 * time.Second)
		api.cut(false)
		after(30 * time.Second)
		if got, want := api.take(), []string{"endpointslices: watch 4", "services: watch 5"}; !slices.Equal(got, want) {
			t.Errorf("requests after a cut: %q, want %q", got, want)
		}
		api.apply(orders("a", "10.0.0.3"))
		after(time.Second)
		out.want(t, ordersGRPC, "10.0.0.3")

		api.cut(true)
		api.apply(orders("a", "10.0.0.4"))
		after(30 * time.Second)
		out.want(t, ordersGRPC, "10.0.0.4")
		if got := api.take(); !slices.Contains(got, "endpointslices: streamed list") && !slices.Contains(got, "endpointslices: list") {
			t.Errorf("requests after 410 Gone: %q", got)
		}
		if len(out.failures) > 0 {
			t.Errorf("failures: %q", out.failures)
		}
		// Events between two lists are not lost.
		api.remove(orders("a"))
		api.cut(true)
		after(30 * time.Second)
		out.want(t, ordersGRPC, "")
	})
}

// Each namespace in use has its informers, which stop when it is no longer used. A namespace
// that cannot be listed does not affect others: its names are pending.
func TestNamespaces(t *testing.T) {
	inBubble(t, options{}, func(t *testing.T, api *apiServer, out *recorder) {
		api.deny("/apis/discovery.k8s.io/v1/namespaces/secret/endpointslices", true)
		api.apply(grpcService("shop", "orders"), orders("a", "10.0.0.1"), grpcService("secret", "vault"), aSlice("secret", "vault", "v", "grpc", 1, aPod("10.0.0.7")))
		out.subscribe(ordersGRPC, "vault.secret:grpc")
		after(latestStart)
		out.want(t, ordersGRPC, "10.0.0.1")
		if want := []string{"vault.secret:grpc"}; !slices.Equal(out.pending[endpointType], want) {
			t.Errorf("pending: %q, want %q", out.pending[endpointType], want)
		}
		if len(out.failures) == 0 || !strings.Contains(out.failures[0], "endpointslices of namespace secret: denied by the test") {
			t.Errorf("failures: %q", out.failures)
		}
		api.deny("/apis/discovery.k8s.io/v1/namespaces/secret/endpointslices", false)
		after(time.Minute)
		out.want(t, "vault.secret:grpc", "10.0.0.7")
		if last := out.failures[len(out.failures)-1]; last != "<nil>" || len(out.pending[endpointType]) > 0 {
			t.Errorf("failures: %q, want <nil> last; pending: %q", out.failures, out.pending[endpointType])
		}

		out.subscribe("vault.secret:grpc")
		after(time.Second)
		out.want(t, ordersGRPC, "none")
		api.take()
		api.cut(false)
		after(time.Minute)
		if got := api.take(); len(got) != 2 {
			t.Errorf("requests after namespace shop is out of use: %q, want one for services and slices each", got)
		}
	})
}

func TestNodes(t *testing.T) {
	inBubble(t, options{nodes: true}, func(t *testing.T, api *apiServer, out *recorder) {
		node := func(region string) *corev1.Node {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyRegion: region, corev1.LabelTopologyZone: "z"}}}
		}
		slice := orders("a", "10.0.0.1")
		name := "n1"
		slice.Endpoints[0].NodeName = &name
		api.apply(grpcService("shop", "orders"), slice, node("r1"))
		out.subscribe(ordersGRPC)
		after(latestStart)
		out.want(t, ordersGRPC, "r1z10.0.0.1")
		api.apply(node("r2"))
		after(time.Second)
		out.want(t, ordersGRPC, "r2z10.0.0.1")
	})
}
