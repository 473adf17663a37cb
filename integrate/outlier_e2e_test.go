// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
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

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// keepCalling makes RPCs on several goroutines of a bubble, a millisecond apart, whatever comes
// of them, until the test ends.
func keepCalling(t *testing.T, cc *grpc.ClientConn, workers int) {
	var wg sync.WaitGroup
	var over atomic.Bool
	for range workers {
		wg.Go(func() {
			for !over.Load() {
				_, _ = call(t, cc)
				time.Sleep(time.Millisecond)
			}
		})
	}
	t.Cleanup(func() {
		over.Store(true)
		wg.Wait()
	})
}

// TestOutlierDetection: of five backends, one of which fails all its RPCs and has
// two addresses (A61), that one is ejected within an interval and returns after the
// base time, and no connection is made or closed on the way (A50, T-OD-2).
func TestOutlierDetection(t *testing.T) { inBubble(t, checkOutlierDetection) }

func checkOutlierDetection(t *testing.T, b *bubble) {
	const interval, baseTime = 400 * time.Millisecond, 1200 * time.Millisecond
	var accepted, ended atomic.Int64
	b.net.OnOpen = func(string, string, int) { accepted.Add(1) }
	b.net.OnEnd = func(string, string, time.Time, bool) { ended.Add(1) }
	backends := b.backends(6)
	bad, gone, good := backends[0], backends[1], backends[2:]
	gone.Stop()
	control := b.control()
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
	cc := b.dial(b.config(control))
	keepCalling(t, cc, 4)
	kit.WaitFor(t, "RPCs at all backends", func() bool {
		for _, b := range append(good, bad) {
			if b.Calls() == 0 {
				return false
			}
		}
		return true
	})
	was, lost := accepted.Load(), ended.Load()

	bad.Fail(codes.Internal)
	failing := time.Now()
	last, calls := failing, bad.Calls()
	kit.WaitFor(t, "the ejection", func() bool {
		if now := bad.Calls(); now != calls {
			last, calls = time.Now(), now
		}
		return time.Since(last) > baseTime/2
	})
	bad.Fail(codes.OK)
	kit.WaitFor(t, "the return", func() bool { return bad.Calls() > calls })
	took, away := last.Sub(failing), time.Since(last)
	t.Logf("ejected after %v, away for %v", took, away)
	// The interval that was under way need not have enough failures. RPCs and looks at them are a few milliseconds apart.
	const slack = 20 * time.Millisecond
	if took > 2*interval+slack {
		t.Errorf("ejected after %v, want %v at most", took, 2*interval)
	}
	// An ejected endpoint returns with the first interval that ends after its time.
	if away < baseTime-slack || away > baseTime+interval+slack {
		t.Errorf("away for %v, want %v to %v", away, baseTime, baseTime+interval)
	}
	if made, closed := accepted.Load()-was, ended.Load()-lost; made != 0 || closed != 0 {
		t.Errorf("%d connections were made and %d closed since before the ejection", made, closed)
	}
}
