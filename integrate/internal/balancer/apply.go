// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"reflect"
	"slices"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// targetState is the current configuration.
type targetState struct {
	cfg     *picker.Config // nil while the target cannot be served
	fatal   error          // the reason
	applied time.Time      // when cfg or fatal was set
	plans   *rpc.Plans     // of cfg
	needs                  // of cfg
	// routed has the compiled routes of cfg until they are published; nil if publish compiles them.
	routed *picker.Snapshot
	// authorities are those of the routes of cfg: see pickState.
	authorities []metadata.MD
}

// needs lists the endpoint data that routes require besides the connections.
type needs struct {
	rewrites   bool // a route rewrites authorities (A81)
	sessions   bool // a route has session affinity (A55)
	avoidHosts bool // attempts of a route avoid endpoints that were already tried
}

// Update implements xds.Watcher: it applies a new configuration of the target. The service
// config is updated first if it changes, so that no RPC combines the new configuration with the
// old service config. The routes are compiled without the mutex, since a configuration may have
// very many: Close and the events of connections do not wait for that.
func (b *Balancer) Update(cfg *picker.Config) {
	routed := b.route(cfg)
	tell := b.compile(cfg)
	plans := b.rpcs.plans
	b.lock()
	defer b.unlock()
	b.callThen(tell, func() {
		if routed != nil {
			b.routed = routed
		}
		b.apply(cfg, plans)
	})
}

// manyRoutes, with their clusters, take about a millisecond to compile.
const manyRoutes = 1000

// route compiles the routes of cfg, which name its clusters, if they are many and have changed.
func (b *Balancer) route(cfg *picker.Config) *picker.Snapshot {
	if len(cfg.Routes)+len(cfg.Clusters) < manyRoutes || b.latest != nil && persistent.SameSlice(b.latest.Routes, cfg.Routes) {
		return nil
	}
	states := make([]picker.ClusterState, len(cfg.Clusters))
	for i := range states {
		states[i].Leaf = -1
	}
	routed, _ := picker.Build(nil, cfg, states, picker.Env{}) // render reports errors
	return routed
}

// compile makes cfg the latest configuration, and its routes' settings rpcs. It returns what
// passes them to gRPC, or nil if gRPC has them.
func (b *Balancer) compile(cfg *picker.Config) (tell func()) {
	if (b.src != nil || b.simulated) && (b.latest == nil || !sameRPCConfig(b.latest, cfg) || !rpc.SameClusters(b.latest, cfg)) {
		methods, plans := rpc.Compile(cfg, b.simulated || b.src.Channel.HasInterceptors())
		if !b.simulated && !reflect.DeepEqual(methods, b.rpcs.methods) {
			tell = func() { b.src.Configure(methods) }
		}
		b.rpcs = rpcConfig{methods, plans}
	}
	b.latest = cfg
	return tell
}

// rpcConfig is the part of a configuration's routes that applies to RPCs regardless of their
// destination. gRPC's service config carries as much of it as it can express, the interceptors
// carry the rest.
type rpcConfig struct {
	methods []methodconfig.Config
	plans   *rpc.Plans
}

// apply makes cfg the current configuration. The cost is proportional to the changes, plus one
// comparison of pointers for each cluster.
func (b *Balancer) apply(cfg *picker.Config, plans *rpc.Plans) {
	rerouted := b.cfg == nil || !persistent.SameSlice(b.cfg.Routes, cfg.Routes)
	changes := &eventlog.Changes{Routes: b.cfg == nil || !sameRPCConfig(b.cfg, cfg)}
	received := cfg.Clusters
	changed, gone := b.relist(received, changes)
	previous := b.list.own
	cfg = b.adapt.config(&b.list, cfg, changed)
	b.cfg, b.fatal = cfg, nil
	needs := b.needs
	if rerouted {
		b.list.reroute()
		b.authorities = authoritiesOf(cfg.Routes)
		needs.rewrites = slices.ContainsFunc(cfg.Routes, func(r picker.Route) bool { return r.AutoHostRewrite })
	}
	if b.plans != plans {
		needs.sessions, needs.avoidHosts = plans.HasSessions(), plans.AvoidHosts()
	}
	b.plans = plans
	if needs != b.needs {
		b.needs = needs
		b.list.markAll()
	}
	for _, i := range changed {
		c := b.list.all[i]
		b.take(c, c.update(cfg.Clusters[i], changes, b.slow()))
		c.received = received[i]
	}
	b.list.setConfigs(received, cfg.Clusters)
	// Last, so that counters of a leaf that has moved to another cluster are never without a
	// user: they count the RPCs in flight.
	for _, c := range gone {
		c.close(changes)
	}
	b.applied = time.Now()
	b.out.publish = true
	b.note(previous, changed, changes)
}

// relist makes the list parallel to the clusters of a configuration, reusing existing clusters
// by name. It returns the indexes of the clusters that are new or changed, and the removed
// clusters, which the caller closes.
func (b *Balancer) relist(clusters []*picker.Cluster, changes *eventlog.Changes) (changed []int, gone map[string]*cluster) {
	changed = b.list.differing(clusters)
	renamed := func(i int) bool { return b.list.received[i].Name != clusters[i].Name }
	if len(clusters) == len(b.list.received) && !slices.ContainsFunc(changed, renamed) {
		return changed, nil
	}
	next := make(map[string]*cluster, len(clusters))
	all := make([]*cluster, len(clusters))
	for i, cc := range clusters {
		c := b.clusters[cc.Name]
		if c == nil {
			c = b.newCluster()
			changes.ClustersAdded++
		}
		all[i], next[cc.Name] = c, c
		delete(b.clusters, cc.Name)
	}
	b.list.set(all)
	gone, b.clusters = b.clusters, next
	changes.ClustersRemoved = len(gone)
	return b.list.differing(clusters), gone
}

// sameRPCConfig reports whether two configurations have the same routes and
// filters.
func sameRPCConfig(a, b *picker.Config) bool {
	return persistent.SameSlice(a.Routes, b.Routes) && persistent.SameSlice(a.Filters, b.Filters) && a.MaxStreamDuration == b.MaxStreamDuration
}

// Error implements xds.Watcher: the target cannot be served. It also removes the timeouts and
// retry policies of methods from gRPC's service config.
func (b *Balancer) Error(err error) {
	b.lock()
	defer b.unlock()
	b.callThen(nil, func() {
		b.cfg, b.fatal = nil, b.id.failure("", err.Error(), ReasonListener)
		b.applied = time.Now()
		b.rec.record(eventlog.Event{Kind: eventlog.TargetFailed, Error: err.Error()}, nil)
		b.closeClusters()
		b.out.publish = true
	})
	if b.rpcs.methods != nil {
		b.callThen(func() { b.src.Configure(nil) }, func() {})
	}
	b.latest, b.rpcs = nil, rpcConfig{}
}

func (b *Balancer) closeClusters() {
	for _, c := range b.list.all {
		c.close(new(eventlog.Changes))
	}
	clear(b.clusters)
	b.list.clear()
}
