// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/fakegrpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// fakeCC is gRPC's side of a balancer. The test moves the SubConns' states.
type fakeCC struct {
	*fakegrpc.CC[chan struct{}] // if not nil, Shutdown waits until it is closed

	duplicate string // an address that was opened while it was open
}

type fakeConn = fakegrpc.SubConn[chan struct{}]

func newFakeCC(errorf func(format string, args ...any)) *fakeCC {
	cc := &fakeCC{CC: fakegrpc.NewCC[chan struct{}](errorf)}
	cc.OnNew = func(c *fakeConn, _ []resolver.Address) {
		if cc.Find(c.Addr) != nil {
			cc.duplicate = c.Addr
		}
	}
	cc.OnCall = func(c *fakeConn, method string) {
		if method == "Shutdown" && c.Data != nil {
			<-c.Data
		}
	}
	return cc
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
func (cc *fakeCC) find(n int) *fakeConn { return cc.Find(addr(n).String()) }

func addr(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 80)
}

// numberAt is the inverse of addr.
func numberAt(address netip.AddrPort) int {
	a := address.Addr().As4()
	return int(a[1])<<16 | int(a[2])<<8 | int(a[3])
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
