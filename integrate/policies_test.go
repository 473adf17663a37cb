// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	clusterprovidedv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/cluster_provided/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/ringhash"
	"github.com/xdslb/xdslb/xds/lbpolicy"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// withPolicy serves four backends under a policy, routed by a header's hash.
func withPolicy(t *testing.T, b *bubble, opt testplane.ClusterOption) (*grpc.ClientConn, []*xdstest.Backend) {
	backends, control := b.backends(4), b.control()
	r := service(backends...)
	r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, opt)}
	r.Routes = []*routev3.RouteConfiguration{xdstest.RouteConfig(target, testplane.HashHeader(xdstest.Route("", target), "session"))}
	set(t, control, r)
	cc := b.dial(b.config(control))
	for _, b := range backends { // until all are connected
		for i := 0; b.Calls() == 0; i++ {
			ctx := metadata.AppendToOutgoingContext(context.Background(), "session", fmt.Sprint(i))
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(true))
			cancel()
			kit.Must(t, err)
		}
	}
	return cc, backends
}

// TestRingHash: RPCs go where the XXH64 ring of Envoy and grpc-go puts the hash
// of their header (A42, T-RING-1..3, T-RING-6).
func TestRingHash(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		cc, backends := withPolicy(t, b, testplane.RingHash(1024, 4096))
		var addrs []string
		for _, b := range backends {
			addrs = append(addrs, b.Addr().String())
		}
		wantRing(t, cc, addrs, addrs)
	})
}

// wantRing checks that RPCs go where the XXH64 ring of hosts with the keys puts
// the value of their header "session"; addrs are where the hosts are.
func wantRing(t *testing.T, cc *grpc.ClientConn, keys, addrs []string) {
	t.Helper()
	var hosts []ringhash.Host
	for _, key := range keys {
		hosts = append(hosts, ringhash.Host{Key: key, Weight: 1})
	}
	ring, err := ringhash.New(hosts, 1024, 4096, ringhash.XXH64)
	kit.Must(t, err)
	for i := range 200 {
		session := fmt.Sprintf("user-%d", i)
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "session", session), time.Minute)
		res, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{})
		cancel()
		kit.Must(t, err)
		if want := addrs[ring.Pick(ringhash.XXH64.Sum(session))]; res.GetHostname() != want {
			t.Errorf("session %q went to %s, want %s", session, res.GetHostname(), want)
		}
	}
}

// checkSlowGetsFew checks that of four backends of a bubble one that is slow gets few of the RPCs.
func checkSlowGetsFew(t *testing.T, cc *grpc.ClientConn, backends []*xdstest.Backend) {
	t.Helper()
	for _, b := range backends {
		b.SetDelay(time.Millisecond)
	}
	backends[0].SetDelay(200 * time.Millisecond)
	before := backends[0].Calls()
	done := make(chan error)
	const workers, each = 8, 100
	for range workers {
		go func() {
			for range each {
				if _, err := call(t, cc); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		kit.Must(t, <-done)
	}
	if n := backends[0].Calls() - before; n > workers*each/6 {
		t.Errorf("the slow one of four backends got %d of %d RPCs, want far less than its even share", n, workers*each)
	} else {
		t.Logf("the slow one got %d of %d RPCs", n, workers*each)
	}
}

// TestOwnPolicyMessage: a program teaches its channels a message of its control
// plane's (A52-REG-2); channels without it take the next in the list.
func TestOwnPolicyMessage(t *testing.T) { inBubble(t, checkOwnPolicyMessage) }

func checkOwnPolicyMessage(t *testing.T, b *bubble) {
	backends, control := b.backends(2), b.control()
	r := service(backends...)
	r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, testplane.LoadReports(), testplane.Policies(&clusterprovidedv3.ClusterProvided{}, &roundrobinv3.RoundRobin{}))}
	set(t, control, r)
	converted := 0
	policies := new(lbpolicy.Registry).With("type.googleapis.com/envoy.extensions.load_balancing_policies.cluster_provided.v3.ClusterProvided",
		func([]byte, lbpolicy.Nested) (picker.Policy, error) {
			converted++
			return picker.Policy{Kind: picker.PolicyPickFirst, Flat: true, First: &picker.PickFirst{}}, nil
		})
	t.Cleanup(func() { time.Sleep(time.Minute) }) // of the bubble: the last reports go out when the channels are closed
	cfg := b.config(control)
	cfg.Policies = policies
	first, plain := b.dial(cfg), b.dial(b.config(control))
	for range 20 {
		if got, err := call(t, first); err != nil || got != backends[0].Addr().String() {
			t.Fatalf("RPC went to %s, %v, want the first backend", got, err)
		}
	}
	kit.WaitFor(t, "RPCs to the other backend", func() bool {
		succeed(t, plain)
		return backends[1].Calls() > 0
	})
	if converted != 1 {
		t.Errorf("the cluster was converted %d times, want once", converted)
	}
}

// customPolicy is a custom LB policy (A52), which picks READY endpoints in turn.
const customPolicy = "xdslb_test.turns"

func init() {
	balancer.Register(base.NewBalancerBuilder(customPolicy, turnsBuilder{}, base.Config{}))
}

type turnsBuilder struct{}

func (turnsBuilder) Build(info base.PickerBuildInfo) balancer.Picker {
	if len(info.ReadySCs) == 0 {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	return &turns{conns: slices.Collect(maps.Keys(info.ReadySCs))}
}

type turns struct {
	conns []balancer.SubConn
	next  atomic.Uint32
}

func (p *turns) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{SubConn: p.conns[int(p.next.Add(1))%len(p.conns)]}, nil
}
