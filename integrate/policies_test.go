// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/ringhash"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// withPolicy serves four backends under a policy, routed by a header's hash.
func withPolicy(t *testing.T, b *bubble, opt testplane.ClusterOption) (*grpc.ClientConn, []*xdstest.Backend) {
	backends, control := b.backends(4), b.control()
	r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
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

// TestLeastRequest: a backend that is slow gets few of the RPCs (A48).
func TestLeastRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		cc, backends := withPolicy(t, b, testplane.LeastRequest(2))
		checkSlowGetsFew(t, cc, backends)
	})
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

// TestLeastRequestShare: of 20 backends one becomes 50 ms slower, and gets few of the RPCs from
// then on. Without an RPC in flight it is as good as any, so that one of 20 RPCs is sent to it, and
// next to none of the following RPCs for 50 ms: of 1500 RPCs in a second 1.05 %.
func TestLeastRequestShare(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		backends, control := b.backends(20), b.control()
		r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
		r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, testplane.LeastRequest(2))}
		set(t, control, r)
		for _, b := range backends {
			b.SetDelay(time.Millisecond)
		}
		keepCalling(t, b.dial(b.config(control)), 4)
		counts := func() (slow, all, least uint64) {
			least = math.MaxUint64
			for _, b := range backends {
				n := b.Calls()
				all, least = all+n, min(least, n)
			}
			return backends[0].Calls(), all, least
		}
		kit.WaitFor(t, "RPCs at all backends", func() bool {
			_, _, least := counts()
			return least > 10
		})
		slow, all, _ := counts()
		backends[0].SetDelay(51 * time.Millisecond)
		time.Sleep(5 * time.Second)
		slower, more, _ := counts()
		share := float64(slower-slow) / float64(more-all)
		t.Logf("%d of %d RPCs, %.2f %%", slower-slow, more-all, 100*share)
		if share > 0.025 {
			t.Errorf("the slow one of 20 backends gets %.2f %% of RPCs, want at most 2.5 %%", 100*share)
		}
	})
}
