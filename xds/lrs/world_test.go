// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// traffic issues RPCs to the localities of a ClusterLoad, as picks do: there is
// no other way to make one count.
type traffic struct {
	load      *picker.ClusterLoad
	snapshot  *picker.Snapshot
	endpoints []*picker.EndpointState // one for each zone
}

func newTraffic(t testing.TB, load *picker.ClusterLoad, zones ...string) *traffic {
	t.Helper()
	tr := &traffic{load: load}
	var cfg picker.Config
	var states []picker.ClusterState
	breaker := new(picker.Breaker)
	for _, zone := range zones {
		locality := picker.Locality{
			ID:        picker.LocalityID{Zone: zone},
			Weight:    1,
			Endpoints: picker.ListOf(picker.Endpoint{Addr: netip.MustParseAddrPort("192.0.2.1:1"), Weight: 1}),
		}
		counters := load.Locality(locality.ID)
		e := &picker.EndpointState{Connectivity: picker.Ready}
		e.Bind(picker.NewBinding(counters, breaker, false))
		tr.endpoints = append(tr.endpoints, e)
		cfg.Clusters = append(cfg.Clusters, &picker.Cluster{Name: zone, Leaves: []picker.Leaf{{
			MaxRequests: 1 << 31, Priorities: []picker.Priority{{Localities: []picker.Locality{locality}}},
		}}})
		states = append(states, picker.ClusterState{
			Breaker: breaker, Overload: load.Overload(),
			Localities: []picker.LocalityState{{Load: counters, Endpoints: picker.StateSlice{e}}},
		})
	}
	var err error
	if tr.snapshot, err = picker.Build(nil, &cfg, states, picker.Env{}); err != nil {
		t.Fatal(err)
	}
	return tr
}

// begin begins n RPCs to a zone.
func (tr *traffic) begin(zone, n int) {
	for range n {
		if r := tr.snapshot.PickCluster(context.Background(), -1, int32(zone), 0); r.Outcome != picker.Picked {
			panic("the pick failed")
		}
	}
}

// end ends n RPCs to a zone.
func (tr *traffic) end(zone, n int, result picker.CallResult) {
	for range n {
		tr.endpoints[zone].Finish(result)
	}
}

// rpcs begins and ends n RPCs to a zone.
func (tr *traffic) rpcs(zone, n int, result picker.CallResult) {
	tr.begin(zone, n)
	tr.end(zone, n, result)
}

// retain sets the zones and drop categories in use.
func retain(load *picker.ClusterLoad, zones, categories []string) {
	var leaf picker.Leaf
	for _, zone := range zones {
		l := picker.Locality{ID: picker.LocalityID{Zone: zone}}
		leaf.Priorities = append(leaf.Priorities, picker.Priority{Localities: []picker.Locality{l}})
	}
	for _, category := range categories {
		leaf.Drops = append(leaf.Drops, picker.Drop{Category: category})
	}
	load.Retain(&leaf)
}

// node introduces the reporters of tests.
var node = &corev3.Node{Id: "test", ClientFeatures: []string{"envoy.lrs.supports_send_all_clusters"}}

// start returns a server and a reporter to it, in a bubble. The server requests reports on all
// clusters every ten seconds.
func start(t *testing.T) (*xdstest.Server, *Reporter) {
	t.Helper()
	s, r, _ := startRecorded(t)
	return s, r
}

// startRecorded is start, with the requests that the server receives.
func startRecorded(t *testing.T) (*xdstest.Server, *Reporter, *recorded) {
	t.Helper()
	n, requests := xdstest.NewNetwork(), new(recorded)
	s := xdstest.New(t, xdstest.Options{Listen: n.Listen, LoadInterval: 10 * time.Second, OnLoadRequest: requests.add})
	r := NewReporter(dial(t, s.Addr(), grpc.WithContextDialer(n.Dial)), node, Options{})
	t.Cleanup(r.Close)
	return s, r, requests
}

// recorded are the requests that a server has received, in order.
type recorded struct {
	mu   sync.Mutex
	list []*lrsv3.LoadStatsRequest
}

func (r *recorded) add(req *lrsv3.LoadStatsRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, req)
}

func (r *recorded) all() []*lrsv3.LoadStatsRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// reports returns the requests except the first of each stream, which has the node.
func (r *recorded) reports() (list []*lrsv3.LoadStatsRequest) {
	for _, req := range r.all() {
		if req.GetNode() == nil {
			list = append(list, req)
		}
	}
	return list
}

// pass lets time pass, in a bubble, with all its events.
func pass(d time.Duration) {
	<-timing.After(d)
	synctest.Wait()
}

// offline is a connection to a server that cannot be reached.
type offline struct{ grpc.ClientConnInterface }

func (offline) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// dial returns a channel to an address.
func dial(t testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// A census is how much a reporter remembers.
type census struct{ clusters, sources, stopped, counters int }

// censusOf counts the state of a reporter.
func censusOf(r *Reporter) census {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := census{clusters: len(r.clusters), stopped: r.stopped}
	for _, c := range r.clusters {
		n.sources += len(c.sources)
		for _, s := range c.sources {
			n.counters += len(s.localities) + len(s.drops)
		}
	}
	return n
}

// stopFull calls stop as if too many sources had been stopped already.
func stopFull(r *Reporter, stop func()) {
	addStopped(r, maxStopped)
	stop()
	addStopped(r, -maxStopped)
}

func addStopped(r *Reporter, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped += n
}
