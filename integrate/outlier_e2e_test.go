// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// counting makes backends count the connections that they accept.
func counting(n *atomic.Int64) xdstest.BackendOptions {
	return xdstest.BackendOptions{Listen: func(addr string) (net.Listener, error) {
		lis, err := net.Listen("tcp", addr)
		return countingListener{lis, n}, err
	}}
}

type countingListener struct {
	net.Listener
	n *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return conn, err
}

// await waits for a condition, and returns how long that took. It looks every millisecond:
// conditions are about backends over connections of the system's, for which there are neither
// events nor bubbles.
func await(t *testing.T, what string, cond func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !cond() {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("still waiting after 20 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(begin)
}

// keepCalling makes RPCs on several goroutines, whatever comes of them, until the
// test ends.
func keepCalling(t *testing.T, cc *grpc.ClientConn, workers int) {
	var wg sync.WaitGroup
	var over atomic.Bool
	for range workers {
		wg.Go(func() {
			for !over.Load() {
				_, _ = call(t, cc)
			}
		})
	}
	t.Cleanup(func() {
		over.Store(true)
		wg.Wait()
	})
}

// total is how many RPCs backends have had.
func total(backends []*xdstest.Backend) (calls uint64) {
	for _, b := range backends {
		calls += b.Calls()
	}
	return calls
}

// TestOutlierDetection: of five backends, one of which fails all its RPCs and has
// two addresses (A61), that one is ejected within an interval and returns after the
// base time, and no connection is closed on the way (A50, T-OD-2).
func TestOutlierDetection(t *testing.T) {
	const interval, baseTime = 400 * time.Millisecond, 1200 * time.Millisecond
	var accepted atomic.Int64
	backends := xdstest.NewBackends(t, 6, counting(&accepted))
	bad, gone, good := backends[0], backends[1], backends[2:]
	gone.Stop()
	control := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(append(good, bad)...)})
	r.Endpoints[0].Endpoints[0].LbEndpoints[4].GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{
		Address: xdstest.Endpoints("", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(gone)}).Endpoints[0].LbEndpoints[0].GetEndpoint().GetAddress(),
	}}
	r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, func(c *clusterv3.Cluster) {
		c.OutlierDetection = &clusterv3.OutlierDetection{
			Interval:                       durationpb.New(interval),
			BaseEjectionTime:               durationpb.New(baseTime),
			EnforcingSuccessRate:           wrapperspb.UInt32(0),
			EnforcingFailurePercentage:     wrapperspb.UInt32(100),
			FailurePercentageThreshold:     wrapperspb.UInt32(50),
			FailurePercentageMinimumHosts:  wrapperspb.UInt32(5),
			FailurePercentageRequestVolume: wrapperspb.UInt32(5),
		}
	})}
	set(t, control, r)
	cc := dial(t, control.Bootstrap("n"))
	keepCalling(t, cc, 4)
	await(t, "RPCs at all backends", func() bool {
		for _, b := range append(good, bad) {
			if b.Calls() == 0 {
				return false
			}
		}
		return true
	})
	was := accepted.Load()

	bad.Fail(codes.Internal)
	failing := time.Now()
	last, calls, others := failing, bad.Calls(), total(good)
	await(t, "the ejection", func() bool {
		if now := bad.Calls(); now != calls {
			last, calls, others = time.Now(), now, total(good)
		}
		// That the others get RPCs tells an ejection from a machine that stalls.
		return time.Since(last) > baseTime/2 && total(good)-others > 100
	})
	bad.Fail(codes.OK)
	await(t, "the return", func() bool { return bad.Calls() > calls })
	back := time.Now()
	took, away := last.Sub(failing), back.Sub(last)
	t.Logf("ejected after %v, away for %v", took, away)
	// The interval that was under way need not have enough failures.
	if took > 2*interval+time.Second {
		t.Errorf("ejected after %v, want %v at most", took, 2*interval)
	}
	// The last RPC may have been on its way for long when the ejection began.
	if back.Sub(failing) < baseTime || away > baseTime+interval+2*time.Second {
		t.Errorf("away for %v, back %v after the first failure, want %v", away, back.Sub(failing), baseTime)
	}
	if now := accepted.Load(); now != was {
		t.Errorf("backends have accepted %d connections, %d before the ejection", now, was)
	}
}
