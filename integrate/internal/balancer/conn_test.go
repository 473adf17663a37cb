// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
)

// TestNoChurn is the connection invariant over random updates: however endpoints move between
// localities and priorities, or are reordered, reweighted, drained, added or removed, an endpoint
// that is in the old and the new configuration keeps its connection; removed ones are closed, and
// none is opened twice.
func TestNoChurn(t *testing.T) {
	steps := 100_000
	if testing.Short() {
		steps = 10_000
	}
	rng := rand.New(rand.NewPCG(4, 2026))
	b, cc := newTestLB(t, Config{})
	old := map[int]bool{}
	for step := range steps {
		perm := rng.Perm(24)[:1+rng.IntN(23)]
		next := map[int]bool{}
		for _, n := range perm {
			next[n] = true
		}
		b.Update(configOf(clusterOf("c", randomSplit(rng, perm)...)))
		b.flush()
		// Let everything fail until all priorities have been started, so that
		// every endpoint has a connection.
		for {
			open := cc.Open()
			for _, sc := range open {
				sc.To(failure)
			}
			if len(cc.Open()) == len(open) {
				break
			}
		}
		wantOpen := 0
		for n := range next {
			if !old[n] {
				wantOpen++
			}
			if !cc.has(n) {
				t.Fatalf("step %d: endpoint %d has no connection", step, n)
			}
		}
		wantClosed := 0
		for n := range old {
			if !next[n] {
				wantClosed++
			}
		}
		if cc.Opened != wantOpen || cc.Closed != wantClosed || cc.duplicate != "" {
			t.Fatalf("step %d: opened %d, closed %d, duplicate %q; want %d, %d, none", step, cc.Opened, cc.Closed, cc.duplicate, wantOpen, wantClosed)
		}
		cc.Opened, cc.Closed = 0, 0
		old = next
	}
}

// randomSplit spreads endpoints over one to three priorities of one to three
// localities with names from a small set, so that localities move about.
func randomSplit(rng *rand.Rand, numbers []int) []picker.Priority {
	prios := make([]picker.Priority, 1+rng.IntN(3))
	for i := range prios {
		for _, z := range rng.Perm(4)[:1+rng.IntN(3)] {
			prios[i].Localities = append(prios[i].Localities, picker.Locality{ID: picker.LocalityID{Zone: string(rune('a' + z))}, Weight: 1 + rng.Uint32N(3)})
		}
	}
	for _, n := range numbers {
		p := &prios[rng.IntN(len(prios))]
		l := &p.Localities[rng.IntN(len(p.Localities))]
		end := l.Endpoints.Len()
		l.Endpoints = replace(l.Endpoints, end, end, picker.Endpoint{Addr: addr(n), Weight: 1 + rng.Uint32N(5)})
	}
	return prios
}

// TestSlowClose: a connection that takes its time to close, as one to a peer that
// is cut off does, holds up neither configurations nor other connections.
func TestSlowClose(t *testing.T) {
	b, cc := connected(t, clusterOf("c", prio(eps(1, 2))), 1, 2)
	hold := make(chan struct{})
	cc.conn(t, 1).Data = hold
	b.publishNow()
	b.Update(configOf(clusterOf("c", prio(eps(2, 3)))))
	b.publishNow() // with which the connection is closed
	cc.conn(t, 2).To(failure)
	cc.conn(t, 3).To(ready)
	b.publishNow()
	if got, err := b.pick(); got != addr(3).String() {
		t.Errorf("picked %q, %v, want endpoint 3", got, err)
	}
	close(hold)
	b.flush()
	if cc.Closed != 1 {
		t.Errorf("%d connections are closed, want 1", cc.Closed)
	}
}

// TestDrainedStaysDown: a draining endpoint that loses its connection gets no other
// (A27-CLA-8), until it drains no more.
func TestDrainedStaysDown(t *testing.T) {
	b, cc := connected(t, clusterOf("c", prio(eps(1, 2))), 1, 2)
	drained := eps(1, 2)
	drained[0].Health = picker.Draining
	b.Update(configOf(clusterOf("c", prio(drained))))
	b.flush()
	wantPick(t, b, 2)
	if !cc.has(1) {
		t.Error("the connection of an endpoint that drains was closed, with its RPCs")
	}
	cc.conn(t, 1).To(idle)
	b.flush()
	if cc.has(1) {
		t.Error("the drained endpoint goes on connecting")
	}
	b.Update(configOf(clusterOf("c", prio(eps(1, 2)))))
	b.flush()
	if cc.conn(t, 1).Connects != 1 {
		t.Error("the endpoint is not connected when it drains no more")
	}
	cc.conn(t, 1).To(ready)
	wantPick(t, b, 1, 2)
}

// TestSubsetWithoutDraining: a random subset (A68) has as many endpoints to pick as it
// should when half of all are draining.
func TestSubsetWithoutDraining(t *testing.T) {
	list := eps(series(1, 20)...)
	for i := range 10 {
		list[i].Health = picker.Draining
	}
	c := clusterOf("c", prio(list))
	c.Leaves[0].Policy = picker.Policy{Flat: true, Subset: 2}
	for range 100 {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(c))
		if n := len(cc.open(21)); n != 2 {
			t.Fatalf("a subset of 2 has %d endpoints that do not drain", n)
		}
		b.Close()
	}
}

// TestEndpointSize keeps endpoints in their size class, which most of the memory
// per endpoint follows from.
func TestEndpointSize(t *testing.T) {
	if size := unsafe.Sizeof(endpoint{}); size > 64 {
		t.Errorf("an endpoint has %d bytes, want at most 64", size)
	}
	if size := unsafe.Sizeof(conn{}); size > 48 {
		t.Errorf("a connection has %d bytes, want at most 48", size)
	}
}

// TestUndrain: an endpoint that was drained from the beginning, and so was never
// connected to, is connected to once it is not drained any more (A27-CLA-8), in the
// priority in use and in one that was passed over for it.
func TestUndrain(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	endpoints := func(health picker.Health) [][]picker.Endpoint {
		list := [][]picker.Endpoint{eps(1, 2), eps(3)}
		list[0][1].Health, list[1][0].Health = health, health
		return list
	}
	for _, health := range []picker.Health{picker.Draining, picker.Healthy} {
		list := endpoints(health)
		b.Update(configOf(clusterOf("c", prio(list[0]), prio(list[1]))))
		if health == picker.Draining {
			cc.conn(t, 1).To(failure) // priority 1 is next, and its only endpoint is draining
		}
		b.flush()
	}
	cc.conn(t, 2).To(failure)
	cc.conn(t, 3).To(ready)
	b.flush()
	if got, err := b.pick(); got != addr(3).String() {
		t.Errorf("picked %q, %v, want endpoint 3", got, err)
	}
}

// lostConn is a connection on which no stream can be created.
type lostConn struct{ grpc.ClientConnInterface }

func (lostConn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unavailable, "connection reset by peer")
}

// TestHealthStreamOfLostConn checks that the end of a health stream is not reported if it is due to
// the loss of the connection, which stops the watch, and is reported otherwise (A17).
func TestHealthStreamOfLostConn(t *testing.T) {
	for _, lost := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var reported []connectivity.State
			w := &healthWatch{service: "s", cancel: cancel}
			go w.run(ctx, lostConn{}, func(s balancer.SubConnState) { reported = append(reported, s.ConnectivityState) })
			synctest.Wait()
			if lost {
				cancel()
			}
			time.Sleep(lossDelay + time.Millisecond)
			synctest.Wait()
			cancel()
			synctest.Wait()
			if failed := len(reported) == 1 && reported[0] == connectivity.TransientFailure; failed == lost {
				t.Errorf("connection lost %v: reported %v", lost, reported)
			}
		})
	}
}

// TestHealthWatchReplaced checks that a connection whose cluster had a health check of its own uses
// the health that gRPC reports once the cluster has none (A17), also if the change was not applied
// to the connection at the time, since the cluster's policy had child policies.
func TestHealthWatchReplaced(t *testing.T) {
	b, cc := newTestLB(t, Config{HealthCheckService: "s"})
	checked := clusterOf("c", prio(eps(1)))
	checked.Leaves[0].HealthCheck = &picker.HealthCheck{Service: "silent"}
	b.set(configOf(checked))
	b.to(cc.conn(t, 1), ready)
	b.lock()
	l := b.live()[0]
	if len(l.watches) != 1 {
		t.Errorf("%d watches of READY connections, want 1", len(l.watches))
	}
	l.cfg = &clusterOf("c", prio(eps(1))).Leaves[0]
	for e := range l.endpoints {
		e.resume()
	}
	l.priorities[0].recount()
	b.unlock()
	wantPick(t, b, 1)
}

// TestHealthListenerOfRemovedConn checks that no health listener is registered with a SubConn that was removed
// since it became READY: it would begin a health stream.
func TestHealthListenerOfRemovedConn(t *testing.T) {
	for _, removed := range []bool{false, true} {
		b, cc := newTestLB(t, Config{HealthCheckService: "s"})
		registered, before := 0, cc.OnCall
		cc.OnCall = func(c *fakeConn, method string) {
			if before(c, method); method == "RegisterHealthListener" {
				registered++
			}
		}
		b.set(configOf(clusterOf("c", prio(eps(1)))))
		next := configOf(clusterOf("c", prio(eps(1))))
		if removed {
			next = configOf(clusterOf("c", prio(eps(2))))
		}
		_, plans := rpc.Compile(next, false)
		b.lock() // no queued call runs between both
		for e := range b.live()[0].endpoints {
			e.conn.onState(balancer.SubConnState{ConnectivityState: ready})
		}
		b.apply(next, plans)
		b.unlock()
		b.calm()
		if called := registered > 0; called == removed {
			t.Errorf("endpoint removed since it became READY: %v; RegisterHealthListener was called: %v, want %v", removed, called, !removed)
		}
	}
}

// TestTLSChangeKeepsConnections (A29, T-SEC-1): other TLS settings open and close no connection, whatever
// the policy.
func TestTLSChangeKeepsConnections(t *testing.T) {
	for name, policy := range map[string]*picker.Cluster{
		"round robin": clusterOf("c"),
		"pick_first":  firstOf(false, false),
		"custom":      customOf(false, stubA, `{}`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, cc := newTestLB(t, Config{})
				for i, tls := range []*picker.TLS{nil, {ServerName: "a"}, {ServerName: "b"}, nil} {
					c := clusterOf("c", prio(eps(1)))
					c.Leaves[0].Policy, c.Leaves[0].TLS = policy.Leaves[0].Policy, tls
					b.set(configOf(c))
					b.flush()
					if i == 0 {
						b.to(cc.conn(t, 1), ready)
					}
					wantPick(t, b, 1)
				}
				if cc.Opened != 1 || cc.Closed != 0 {
					t.Errorf("%d connections were opened and %d closed, want 1 and 0", cc.Opened, cc.Closed)
				}
			})
		})
	}
}
