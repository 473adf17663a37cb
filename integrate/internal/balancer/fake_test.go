// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// fakeCC stands in for gRPC's side of a balancer. As gRPC does, it never calls
// back from within a call; the test moves the SubConns' states.
type fakeCC struct {
	balancer.ClientConn // nil: any other method is not expected

	b         *Balancer
	mu        sync.Mutex
	conns     map[string]*fakeConn // open ones, by address
	opened    int
	closed    int
	state     connectivity.State
	picker    balancer.Picker
	announced int
	streams   int    // of load reports, open
	streamed  int    // of load reports, ever
	duplicate string // an address that was opened while it was open
}

type fakeConn struct {
	balancer.SubConn // nil

	cc       *fakeCC
	addr     string
	listener func(balancer.SubConnState)
	connects int
	shut     bool
	hold     chan struct{} // if not nil, Shutdown waits until it is closed
	healthy  chan struct{} // if not nil, the health listener waits until it is closed
}

// MetricsRecorder implements balancer.ClientConn; it discards all metrics.
func (*fakeCC) MetricsRecorder() estats.MetricsRecorder {
	return estats.UnimplementedMetricsRecorder{}
}

func newFakeCC() *fakeCC { return &fakeCC{conns: map[string]*fakeConn{}} }

func (cc *fakeCC) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	sc := &fakeConn{cc: cc, addr: addrs[0].Addr, listener: opts.StateListener}
	if cc.conns[sc.addr] != nil {
		cc.duplicate = sc.addr
	}
	cc.conns[sc.addr] = sc
	cc.opened++
	return sc, nil
}

func (cc *fakeCC) UpdateState(s balancer.State) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	cc.state, cc.picker = s.ConnectivityState, s.Picker
	cc.announced++
}

func (cc *fakeCC) ResolveNow(resolver.ResolveNowOptions) {}

func (sc *fakeConn) Connect() {
	sc.cc.mu.Lock()
	defer sc.cc.mu.Unlock()
	sc.connects++
}

// RegisterHealthListener reports READY soon, as gRPC does without health checks.
func (sc *fakeConn) RegisterHealthListener(l func(balancer.SubConnState)) {
	healthy := sc.healthy
	sc.cc.b.closing.Go(func() {
		if healthy != nil {
			<-healthy
		}
		l(balancer.SubConnState{ConnectivityState: connectivity.Ready})
	})
}

func (sc *fakeConn) Shutdown() {
	if sc.hold != nil {
		<-sc.hold
	}
	sc.cc.mu.Lock()
	defer sc.cc.mu.Unlock()
	if !sc.shut {
		sc.shut = true
		sc.cc.closed++
		if sc.cc.conns[sc.addr] == sc {
			delete(sc.cc.conns, sc.addr)
		}
	}
}

// GetOrBuildProducer builds the producer of out-of-band load reports; each SubConn has
// one at a time. Nothing is ever reported.
func (sc *fakeConn) GetOrBuildProducer(pb balancer.ProducerBuilder) (balancer.Producer, func()) {
	count := func(open, opened int) {
		sc.cc.mu.Lock()
		defer sc.cc.mu.Unlock()
		sc.cc.streams += open
		sc.cc.streamed += opened
	}
	count(1, 1)
	p, stop := pb.Build(silent{})
	return p, func() { stop(); count(-1, 0) }
}

// silent is a connection to a server that never answers.
type silent struct{ grpc.ClientConnInterface }

func (silent) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

func (silent) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// to moves the SubConn to a state, as gRPC would report it.
func (sc *fakeConn) to(s connectivity.State) {
	st := balancer.SubConnState{ConnectivityState: s}
	if s == connectivity.TransientFailure {
		st.ConnectionError = errors.New("connection refused")
	}
	sc.listener(st)
}

// conn returns the open SubConn of an endpoint made by ep.
func (cc *fakeCC) conn(t testing.TB, n int) *fakeConn {
	t.Helper()
	sc := cc.find(n)
	if sc == nil {
		t.Fatalf("endpoint %d has no SubConn", n)
	}
	return sc
}

// has reports whether an endpoint has a SubConn.
func (cc *fakeCC) has(n int) bool { return cc.find(n) != nil }

// find returns the open SubConn of an endpoint, or nil.
func (cc *fakeCC) find(n int) *fakeConn {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	return cc.conns[addr(n).String()]
}

func addr(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 80)
}

// eps makes endpoints with the given numbers and weight 1.
func eps(numbers ...int) []picker.Endpoint {
	out := make([]picker.Endpoint, len(numbers))
	for i, n := range numbers {
		out[i] = picker.Endpoint{Addr: addr(n), Weight: 1}
	}
	return out
}

// prio makes a priority of localities named after their index.
func prio(localities ...[]picker.Endpoint) picker.Priority {
	var p picker.Priority
	for i, e := range localities {
		p.Localities = append(p.Localities, picker.Locality{ID: picker.LocalityID{Zone: fmt.Sprint(i)}, Weight: 1, Endpoints: picker.ListOf(e...)})
	}
	return p
}

// edit changes an endpoint of p's first locality.
func edit(p *picker.Priority, i int, f func(*picker.Endpoint)) {
	l := &p.Localities[0]
	e := *l.Endpoints.At(i)
	f(&e)
	l.Endpoints = replace(l.Endpoints, i, i+1, e)
}

// replace returns a version of a list in which the endpoints [i, j) are replaced by others.
func replace(list picker.EndpointList, i, j int, others ...picker.Endpoint) picker.EndpointList {
	var b persistent.Builder[picker.Endpoint]
	b.Follow(list, list.Len()+len(others))
	for k, e := range slices.Insert(list.Slice(), j, others...) {
		switch {
		case k < i:
			b.Add(e, k)
		case k >= j && k < j+len(others):
			b.Add(e, -1)
		case k >= j:
			b.Add(e, k-len(others))
		}
	}
	return b.List()
}

// clusterOf makes a cluster of one leaf.
func clusterOf(name string, prios ...picker.Priority) *picker.Cluster {
	return &picker.Cluster{Name: name, Leaves: []picker.Leaf{{Name: name, Service: name, MaxRequests: 1024, Priorities: prios}}}
}

// configOf routes everything to the first cluster.
func configOf(clusters ...*picker.Cluster) *picker.Config {
	return &picker.Config{
		Routes:   []picker.Route{{Clusters: []picker.WeightedCluster{{Name: clusters[0].Name, Weight: 1}}}},
		Clusters: clusters,
	}
}
