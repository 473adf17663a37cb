// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// This file is all that the random model knows of the inside of this package:
// how to give the balancer what the XdsClient gives, what sessions are to a pick,
// and what the process must not keep. Everything else goes through gRPC's
// interfaces.

// modelBootstrap has two servers, whose keys are modelServers.
const modelBootstrap = `{"node": {"id": "model"}, "xds_servers": [
	{"server_uri": "passthrough:///primary", "channel_creds": [{"type": "insecure"}]},
	{"server_uri": "passthrough:///secondary", "channel_creds": [{"type": "insecure"}]}]}`

// newModelBalancer returns the resolver and the LB policy as gRPC builds them,
// with a channel's options. The control plane's streams are what the interceptor
// makes of them.
func newModelBalancer(cc balancer.ClientConn, opts Config, creds credentials.TransportCredentials, control grpc.StreamClientInterceptor) (balancer.Balancer, resolver.Resolver) {
	states := &stateCC{}
	r, err := buildModel(states, opts, control)
	if err != nil {
		panic(err)
	}
	b := balancerBuilder{}.Build(cc, balancer.BuildOptions{DialCreds: creds})
	if err := b.UpdateClientConnState(balancer.ClientConnState{ResolverState: states.states[0]}); err != nil {
		panic(err)
	}
	return b, r
}

// buildModel builds the resolver.
func buildModel(states *stateCC, opts Config, control grpc.StreamClientInterceptor) (resolver.Resolver, error) {
	opts.Linger, opts.ResourceTimeout = -1, 1e6*time.Hour
	opts.ControlPlaneDialOptions = []grpc.DialOption{grpc.WithChainStreamInterceptor(control)}
	opts.Bootstrap = []byte(modelBootstrap)
	return BuildResolver(opts, resolver.Target{URL: url.URL{Scheme: "xds", Path: "/model"}}, states, resolver.BuildOptions{MetricsRecorder: estats.UnimplementedMetricsRecorder{}})
}

// modelServers returns the keys of the servers that load can be reported to.
func modelServers() (keys []string) {
	cfg, err := bootstrap.Parser{}.Parse("model", []byte(modelBootstrap))
	if err != nil {
		panic(err)
	}
	for _, s := range cfg.Servers {
		keys = append(keys, s.Key())
	}
	return keys
}

// push is a configuration from the XdsClient.
func push(b balancer.Balancer, cfg *picker.Config) { b.(*Balancer).Update(cfg) }

// sessionFilter is the HTTP filter of session affinity as the XdsClient decodes it.
func sessionFilter() picker.Filter {
	return picker.Filter{Name: "session", Config: &resource.Session{Cookie: "c", Path: "/"}}
}

// inSessionWith is the context of an RPC whose cookie names an endpoint, as the
// interceptor makes it.
func inSessionWith(ctx context.Context, b balancer.Balancer, method string, host netip.AddrPort) context.Context {
	table := b.(*Balancer).picker.table()
	if table.Plans == nil {
		return ctx
	}
	ctx, call := rpc.Bind(ctx, table, method)
	if call != nil {
		call.StartSession([]netip.AddrPort{host})
	}
	return ctx
}

// avoidingTried is the context of an RPC whose attempts avoid endpoints that were tried, if
// its route says so, as the interceptor makes it.
func avoidingTried(ctx context.Context, b balancer.Balancer, method string) (of context.Context, bound bool) {
	table := b.(*Balancer).picker.table()
	if table.Plans == nil {
		return ctx, false
	}
	ctx, call := rpc.Bind(ctx, table, method)
	return ctx, call != nil && call.Tried() != nil
}

// tableIn is what RPCs that begin go by.
func tableIn(b balancer.Balancer) *rpc.Table { return b.(*Balancer).picker.table() }

// hasPlans reports whether picks look for what interceptors have bound. If the routes stop
// asking for anything they do not, and an attempt that loses is a failure.
func hasPlans(b balancer.Balancer) bool { return b.(*Balancer).picker.table().Plans != nil }

// busy returns how many RPCs the endpoints count as in flight, each as many as its policy
// compares.
func busy(b balancer.Balancer) (n int) {
	lb := b.(*Balancer)
	lb.lock()
	defer lb.unlock()
	for _, c := range lb.clusters {
		for _, l := range c.leaves {
			for _, p := range l.priorities {
				for e := range p.endpoints {
					if in := e.InFlight(); in != 0 {
						n += max(in, 1)
					}
				}
			}
		}
	}
	return n
}

// breakersInUse is how many circuit breakers the process has.
func breakersInUse() (n int) {
	counters.Breakers(func(string, string, *counters.Breaker) { n++ })
	return n
}

// statusIn returns what Channel.Inspect, or Channel.Status, returns for the balancer's channel.
func statusIn(b balancer.Balancer, detailed bool) report.TargetStatus {
	for _, c := range Channels() {
		switch {
		case c.Number() != b.(*Balancer).src.Channel.Number():
		case detailed:
			return c.Inspect()
		default:
			return c.Status()
		}
	}
	return report.TargetStatus{}
}

// readyIn reports whether WaitReady would return for RPCs of a method.
func readyIn(b balancer.Balancer, method string) bool {
	return isReady(context.Background(), b.(*Balancer), method)
}

// unpublished reports whether picks are yet to see something that has changed: it
// waits for publishPause to be over.
func unpublished(b balancer.Balancer) bool {
	lb := b.(*Balancer)
	lb.rt.Lock()
	defer lb.rt.Unlock()
	return lb.pending != nil && !lb.rt.Closed()
}

// publishedCluster is what picks read of a cluster, and what that was when it came into
// force: an RPC may go by it for as long as it likes.
type publishedCluster struct {
	view        *clusterView
	groups      []*group
	picks       []balancer.SubConn
	connectable []*endpoint
	localities  []picker.LocalityState
	endpoints   [][]*picker.EndpointState
}

func newPublishedCluster(view *clusterView, localities []picker.LocalityState) *publishedCluster {
	p := &publishedCluster{view: view, groups: slices.Clone(view.groups), connectable: slices.Clone(view.connectable), localities: localities}
	for _, k := range view.results {
		p.picks = append(p.picks, k.sc)
	}
	for _, l := range localities {
		p.endpoints = append(p.endpoints, endpointStates(l.Endpoints))
	}
	return p
}

func endpointStates(list picker.EndpointStates) (all []*picker.EndpointState) {
	for i := range list.Len() {
		all = append(all, list.State(i))
	}
	return all
}

// same reports whether it is what it was.
func (p *publishedCluster) same() bool {
	return slices.Equal(p.groups, p.view.groups) && slices.Equal(p.connectable, p.view.connectable) &&
		slices.EqualFunc(p.picks, p.view.results, func(sc balancer.SubConn, k result) bool { return sc == k.sc }) &&
		slices.EqualFunc(p.endpoints, p.localities, func(e []*picker.EndpointState, l picker.LocalityState) bool {
			return slices.Equal(e, endpointStates(l.Endpoints))
		})
}

// checkReplacements checks that connections that are replaced, or to replace others, go in
// pairs of one in force and its replacement: the balancer would keep others for ever.
func (t *trial) checkReplacements() {
	b := t.lb.(*Balancer)
	b.lock()
	defer b.unlock()
	for _, l := range (&testLB{b}).live() {
		for c, other := range l.replacements {
			if l.replacements[other] != c || c.replacement == other.replacement || c.replacement != (c.endpoint == nil) {
				t.Fatalf("a connection that ended is still in a pair with its replacement")
			}
		}
	}
}

// checkPublished checks that what was published a step ago has not changed, and keeps what
// is published now.
func (t *trial) checkPublished() {
	for _, p := range t.published {
		if !p.same() {
			t.Fatalf("what picks read of a cluster has changed after it was published")
		}
	}
	b := t.lb.(*Balancer)
	b.lock()
	defer b.unlock()
	t.published = nil
	current := b.picker.current.Load()
	if current.Snapshot == nil {
		return
	}
	t.checkSnapshot(b, current.Snapshot)
	for i, c := range b.list.all {
		if !c.dirty && i < current.clusters.Len() {
			t.published = append(t.published, newPublishedCluster(current.cluster(int32(i)), c.state.Localities))
		}
	}
}

// checkSnapshot checks that the published snapshot, which is made of others by what has changed,
// has picks come to the same as one that is made by looking at everything. In slow start, or
// where latencies count, that depends on the time.
func (t *trial) checkSnapshot(b *Balancer, current *picker.Snapshot) {
	states, cfg := make([]picker.ClusterState, len(b.list.all)), *b.cfg
	cfg.Clusters = make([]*picker.Cluster, len(b.list.all))
	for i, c := range b.list.all {
		states[i], cfg.Clusters[i] = c.state, c.stateCfg
		if c.stateCfg == nil {
			return // nothing of this list has been published
		}
		states[i].Localities = slices.Clone(c.state.Localities)
		for k := range states[i].Localities {
			states[i].Localities[k].Version = 0
		}
	}
	if b.list.whole {
		return
	}
	anew, err := picker.Build(nil, &cfg, states, b.env())
	if err != nil {
		t.Fatalf("the published snapshot cannot be made anew: %v", err)
		return
	}
	for i, c := range b.list.all {
		if c.dirty || current.InSlowStart(i) || c.inUse != nil && c.inUse.leaf.cfg.Policy.TimesRPCs() {
			continue
		}
		got, want := current.ExplainCluster(context.Background(), -1, int32(i)), anew.ExplainCluster(context.Background(), -1, int32(i))
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("picks of cluster %s: %+v; a snapshot built from scratch: %+v", c.cfg.Name, got, want)
		}
	}
}
