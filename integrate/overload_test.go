// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A queue is a server that does one RPC after the other, including RPCs whose client does not wait
// any more.
type queue struct {
	mu   sync.Mutex
	free time.Time
}

// serve takes a fixed time of the server for each RPC.
func (q *queue) serve(need time.Duration) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		q.mu.Lock()
		now := time.Now()
		if q.free.Before(now) {
			q.free = now
		}
		q.free = q.free.Add(need)
		wait := q.free.Sub(now)
		q.mu.Unlock()
		time.Sleep(wait) // of the bubble
		return handler(ctx, req)
	}
}

// An overload is the result of one.
type overload struct {
	goodput  float64       // RPCs that succeed while it lasts, as a share of the servers' capacity
	recovery time.Duration // from its end to that of the last RPC which fails
}

const (
	overloadCapacity = 60 // RPCs in a second
	overloadDeadline = 500 * time.Millisecond
)

// runOverload sends half of the capacity of two servers, then twice their capacity for 10 s, and
// half again.
func runOverload(t *testing.T, change func(*xdstest.Resources)) (out overload) {
	synctest.Test(t, func(t *testing.T) {
		net := xdstest.NewNetwork()
		var endpoints []xdstest.Endpoint
		for range 2 {
			b := xdstest.NewBackends(t, 1, xdstest.BackendOptions{Listen: net.Listen, Server: []grpc.ServerOption{
				grpc.UnaryInterceptor(new(queue).serve(2 * time.Second / overloadCapacity)),
			}})
			endpoints = append(endpoints, xdstest.BackendEndpoints(b...)...)
		}
		control := xdstest.New(t, xdstest.Options{Listen: net.Listen})
		r := xdstest.Service(target, xdstest.Locality{Endpoints: endpoints})
		cfg := integrate.Config{Bootstrap: control.Bootstrap(t.Name()), Linger: -1, ControlPlaneDialOptions: []grpc.DialOption{grpc.WithContextDialer(net.Dialer("control"))}}
		change(&r)
		set(t, control, r)
		cc, err := cfg.NewClient("xds:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(net.Dialer("client")))
		kit.Must(t, err)
		client := testgrpc.NewTestServiceClient(cc)
		if _, err := client.EmptyCall(t.Context(), &testgrpc.Empty{}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		var calling sync.WaitGroup
		var good, lastFailure atomic.Int64
		begin := time.Now()
		const overloaded, over, end = 5 * time.Second, 15 * time.Second, 22 * time.Second
		for at := time.Duration(0); at < end; at = time.Since(begin) {
			rate := .5 * overloadCapacity
			if at >= overloaded && at < over {
				rate = 2 * overloadCapacity
			}
			calling.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), overloadDeadline)
				defer cancel()
				_, err := client.EmptyCall(ctx, &testgrpc.Empty{})
				switch ended := time.Since(begin); {
				case err != nil && ended >= over:
					lastFailure.Store(int64(ended - over))
				case err == nil && ended >= overloaded && ended < over:
					good.Add(1)
				}
			})
			time.Sleep(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
		}
		calling.Wait()
		out = overload{float64(good.Load()) / (overloadCapacity * (over - overloaded).Seconds()), time.Duration(lastFailure.Load())}
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // for RPCs that servers still have
	})
	return out
}

// TestOverload: if servers get twice the load they can handle and continue with RPCs whose deadline has
// passed, max_requests keeps at least 90 % of the RPCs succeeding that the servers can handle, and no RPC
// fails later than 5 s after the overload.
func TestOverload(t *testing.T) {
	limit := func(r *xdstest.Resources) {
		inFlight := overloadCapacity * overloadDeadline.Seconds() * .7
		testplane.MaxRequests(uint32(inFlight))(r.Clusters[0])
	}
	for _, tt := range []struct {
		name   string
		change func(*xdstest.Resources)
		keeps  bool
	}{
		{"no limit", func(*xdstest.Resources) {}, false},
		{"limit", limit, true},
	} {
		if testing.Short() && !tt.keeps {
			continue
		}
		got := runOverload(t, tt.change)
		t.Logf("%s: goodput %.2f of the capacity, recovery after %v", tt.name, got.goodput, got.recovery)
		if keeps := got.goodput >= .9 && got.recovery <= 5*time.Second; keeps != tt.keeps {
			t.Errorf("%s: goodput is %.2f of the capacity, and recovery takes %v; at least 0.9 and at most 5 s: want %v", tt.name, got.goodput, got.recovery, tt.keeps)
		}
	}
}
