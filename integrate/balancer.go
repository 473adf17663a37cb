// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// policyName is the LB policy that the resolver's service config names. It
// works with our resolver only, which hands it the configuration's source.
const policyName = "xdslb_experimental"

type balancerBuilder struct{}

func (balancerBuilder) Name() string { return policyName }

func (balancerBuilder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return newLB(cc, opts)
}

func (balancerBuilder) ParseConfig(json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	return struct {
		serviceconfig.LoadBalancingConfig
	}{}, nil
}

// lb is the LB policy: it follows the target's configuration, owns the
// SubConns, and publishes snapshots.
//
// Everything that changes it (configurations, SubConn states, timers) takes mu,
// does its work and leaves; picks take no lock. gRPC's ClientConn is called
// with mu held, which is safe because gRPC calls back from goroutines of its
// own only; no code of the user runs under mu.
type lb struct {
	channel
	adapt     adaptation
	channelID uint64 // random; what hash policies by channel id hash (A42)
	picker    stablePicker
	// randomHashes are those of RPCs that have nothing to hash (A42). It has its own locks.
	randomHashes randomHashes

	src       *source
	stopWatch func()
	cfg       *picker.Config // nil while the target cannot be served
	fatal     error          // why it cannot be
	clusters  map[string]*cluster
	list      clusterList // the same, parallel to cfg.Clusters
	version   uint64      // of the latest cluster that changed

	plans      *perrpc.Plans     // of cfg
	routeErrs  *routeErrors      // of cfg, or an earlier one
	latest     *picker.Config    // the latest configuration, which may not be in force yet
	rpcs       rpcConfig         // of latest
	watch      callWatch         // whether RPCs are counted by endpoint
	applying   *eventlog.Changes // of the configuration that is being applied
	applied    time.Time         // when cfg was, or fatal
	rewrites   bool              // a route of cfg rewrites authorities (A81)
	sessions   bool              // a route of cfg has session affinity (A55)
	avoidHosts bool              // attempts of a route avoid endpoints that were tried

	grown   []*cluster     // of which more endpoints are READY, and nothing else has changed
	early   []*cluster     // whose state may be announced before it is published
	closing sync.WaitGroup // of connections

	announced   connectivity.State // what gRPC was last told
	nextPublish time.Time
	publishTime time.Duration // that the last publication took
	urgent      bool          // a cluster became READY that the snapshot calls otherwise
	pending     *time.Timer   // runs while a publication is due
	publishDue  time.Time     // when pending is
	publication chan struct{} // closed by the next one; nil unless somebody waits for it
}

func newLB(cc balancer.ClientConn, opts balancer.BuildOptions) *lb {
	b := &lb{
		channel:  channel{rt: serial.New(), cc: cc, build: opts},
		clusters: map[string]*cluster{}, channelID: rand.Uint64(),
		announced: connectivity.Shutdown, // nothing yet
	}
	b.adapt = adaptation{channel: &b.channel, subsetSeed: rand.Uint64()}
	b.rec.init()
	b.picker.current.Store(&published{})
	return b
}

// UpdateClientConnState comes once with the channel's source, and again only
// if the resolver's state changes.
func (b *lb) UpdateClientConnState(s balancer.ClientConnState) error {
	src := sourceOf(s.ResolverState)
	if src == nil {
		return errors.New("xdslb: this LB policy works with xdslb's resolver only")
	}
	b.lock()
	if b.rt.Closed() || b.src != nil {
		b.unlock()
		return nil
	}
	b.src, b.client, b.bootstrap = src, src.Client, src.Bootstrap
	b.id = identity{link: src.Link, listener: src.Listener, authority: src.Authority, node: src.Node}
	b.setOptions(src.Options)
	b.rec.target = b.build.Target.String()
	b.rec.channel = []slog.Attr{slog.String("target", src.Link.Target), slog.String("node", src.Node)}
	b.updateStateLocked(connectivity.Connecting)
	b.unlock()
	metrics := src.StartMetrics(b)
	b.lock()
	b.rec.metrics = metrics
	b.unlock()
	stop := src.Watch(b)
	b.lock()
	b.stopWatch = stop
	closed := b.rt.Closed()
	b.unlock()
	if closed {
		src.Link.AfterWaiting(stop)
		metrics.Stop()
	}
	return nil
}

// setOptions sets the channel's options.
func (b *lb) setOptions(opts *options) {
	b.opts = opts
	b.rec.logger.Store(opts.Logger)
}

// Update implements xds.Watcher: a new configuration of the target. If gRPC has
// to be told something of methods, that comes first, so that no RPC is made by the
// new configuration and the old service config.
func (b *lb) Update(cfg *picker.Config) {
	b.lock()
	defer b.unlock()
	var tell func()
	if (b.src != nil || b.simulated) && (b.latest == nil || !sameRPCConfig(b.latest, cfg) || !perrpc.SameRetryLimits(b.latest, cfg) || !perrpc.SameAsking(b.latest, cfg)) {
		methods, plans := perrpc.Compile(cfg, perrpc.CompileOptions{Before: b.rpcs.plans, Intercepted: b.simulated || b.src.Link.HasInterceptors()})
		if !b.simulated && !reflect.DeepEqual(methods, b.rpcs.methods) {
			tell = func() { b.src.Configure(methods) }
		}
		b.rpcs = rpcConfig{methods, plans}
	}
	b.latest = cfg
	plans := b.rpcs.plans
	b.callThen(tell, func() { b.applyLocked(cfg, plans) })
}

// rpcConfig is what a configuration's routes say about RPCs besides where they go:
// through gRPC's service config as far as that goes, the rest to interceptors.
type rpcConfig struct {
	methods []perrpc.MethodConfig
	plans   *perrpc.Plans
}

// applyLocked takes over a configuration. It costs what has changed, and one comparison of
// pointers for each cluster.
func (b *lb) applyLocked(cfg *picker.Config, plans *perrpc.Plans) {
	rerouted := b.cfg == nil || !persistent.SameSlice(b.cfg.Routes, cfg.Routes)
	replanned := b.plans != plans
	b.plans = plans
	b.applying = &eventlog.Changes{Routes: b.cfg == nil || !sameRPCConfig(b.cfg, cfg)}
	received := cfg.Clusters
	changed, gone := b.relistLocked(received)
	cfg = b.adapt.config(&b.list, cfg, changed)
	b.adapt.noteWeights(cfg, changed)
	for _, i := range changed {
		b.rec.recordZones(b.list.all[i].cfg, cfg.Clusters[i])
	}
	b.rec.recordIgnored(cfg, changed)
	b.cfg, b.fatal = cfg, nil
	if rerouted {
		b.list.reroute()
		b.setRewritesLocked(slices.ContainsFunc(cfg.Routes, func(r picker.Route) bool { return r.AutoHostRewrite }))
	}
	if replanned {
		b.setHostsLocked(plans.HasSessions(), plans.AvoidHosts())
	}
	for _, i := range changed {
		c := b.list.all[i]
		b.take(c, c.update(cfg.Clusters[i], b.applying, b.slow()))
		c.received = received[i]
	}
	b.list.follow(received, cfg.Clusters)
	// Last, so that the counters of a leaf that another cluster has now are never without
	// a user: they know of the RPCs in flight.
	for _, c := range gone {
		c.close(b.applying)
	}
	b.rec.record(eventlog.Event{Kind: eventlog.ConfigurationApplied, Changes: b.applying}, nil)
	b.applied = time.Now()
	b.out.publish = true
}

// relistLocked makes the list parallel to the clusters of a configuration, with the cluster
// of before where there is one of the name. It returns the indexes of those that have changed
// or are new, and those that are gone, which the caller closes.
func (b *lb) relistLocked(clusters []*picker.Cluster) (changed []int, gone map[string]*cluster) {
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
			b.applying.ClustersAdded++
		}
		all[i], next[cc.Name] = c, c
		delete(b.clusters, cc.Name)
	}
	b.list.set(all)
	gone, b.clusters = b.clusters, next
	b.applying.ClustersRemoved = len(gone)
	return b.list.differing(clusters), gone
}

// sameRPCConfig reports whether two configurations have the same routes and
// filters.
func sameRPCConfig(a, b *picker.Config) bool {
	return persistent.SameSlice(a.Routes, b.Routes) && persistent.SameSlice(a.Filters, b.Filters) && a.MaxStreamDuration == b.MaxStreamDuration
}

// Error implements xds.Watcher: the target cannot be served. After that gRPC is told
// that methods have no timeouts and retries any more.
func (b *lb) Error(err error) {
	b.lock()
	defer b.unlock()
	b.callThen(nil, func() {
		b.cfg, b.fatal = nil, b.id.failure("", err.Error(), ReasonTarget)
		b.applied = time.Now()
		b.rec.record(eventlog.Event{Kind: eventlog.TargetFailed, Error: err.Error()}, nil)
		b.closeClustersLocked()
		b.out.publish = true
	})
	if b.rpcs.methods != nil {
		b.callThen(func() { b.src.Configure(nil) }, func() {})
	}
	b.latest, b.rpcs = nil, rpcConfig{}
}

func (b *lb) closeClustersLocked() {
	for _, c := range b.list.all {
		c.close(new(eventlog.Changes))
	}
	clear(b.clusters)
	b.list.clear()
}

// ResolverError is called only if another resolver is in use.
func (b *lb) ResolverError(err error) { b.Error(err) }

// UpdateSubConnState is never called: SubConns have listeners.
func (b *lb) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle is called when the user wants the channel connected. Clusters that
// wait for RPCs connect to one endpoint each; the others are at it anyway. A channel that
// was woken for an RPC is left to that RPC.
func (b *lb) ExitIdle() {
	b.lock()
	defer b.unlock()
	if b.rt.Closed() || b.src != nil && b.src.Link.TakeWake() {
		return
	}
	for _, c := range b.clusters {
		if c.status() == picker.Idle {
			c.inUse.connectOneIdle()
			b.follow(c)
		}
	}
	b.out.publish = true
}

// Close releases everything. gRPC closes the SubConns with the channel; those
// of a channel that goes idle are closed here.
func (b *lb) Close() {
	b.lock()
	b.rt.Close()
	if b.pending != nil {
		b.pending.Stop()
	}
	b.closeClustersLocked()
	b.rec.log.Close()
	b.shutdownPendingLocked()
	b.notifyPublicationLocked()
	serial.Halt(&b.watch.timer)
	stop, metrics := b.stopWatch, b.rec.metrics
	b.unlock()
	if stop != nil {
		b.src.Link.AfterWaiting(stop)
		metrics.Stop()
	}
}

// shutdownPendingLocked shuts connections down on a goroutine of its own: closing one whose peer
// takes nothing any more keeps gRPC waiting for 5 s, and neither configurations nor
// the states of other connections are to wait for that.
func (b *lb) shutdownPendingLocked() {
	if len(b.out.closing) == 0 {
		return
	}
	pending := b.out.closing
	b.out.closing, b.out.repick = nil, true
	b.closing.Go(func() {
		for _, shut := range pending {
			shut()
		}
	})
}
