// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/integrate/internal/weights"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
)

// PolicyName is the name of the LB policy in the resolver's service config. The policy works
// only with the resolver of package integrate, which passes it the configuration's source.
const PolicyName = "xdslb_experimental"

// Register registers the LB policies of channels with and without xDS, and that of doneIdentifiesRPC.
func Register() {
	balancer.Register(balancerBuilder{})
	for kind := range standalonePolicies {
		balancer.Register(standaloneBuilder{kind})
	}
	balancer.Register(doneCheckBuilder{})
}

var _ xds.Watcher = (*Balancer)(nil)

type balancerBuilder struct{}

func (balancerBuilder) Name() string { return PolicyName }

func (balancerBuilder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	b := newBalancer(cc, opts)
	b.randomHashes.perPick = !doneIdentifiesRPC()
	return b
}

func (balancerBuilder) ParseConfig(json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	return struct {
		serviceconfig.LoadBalancingConfig
	}{}, nil
}

// Balancer is the LB policy: it follows the target's configuration, owns the SubConns, and
// publishes snapshots.
//
// It is the top of a tree of clusters, priorities and endpoints. Events (configurations,
// SubConn states, timers, calls of child policies) enter here, take the mutex and are passed
// down by call. Their effects are returned as a result (cluster.go), which settle acts on. Picks
// take no lock. gRPC's ClientConn is called with the mutex held, which is safe because gRPC
// calls back from its own goroutines only. No user code runs under the mutex.
type Balancer struct {
	channel
	targetState
	publisher
	adapt     adaptation
	src       *Source // nil without xDS
	stopWatch func()
	clusters  map[string]*cluster
	watch     callWatch // whether RPCs are counted by endpoint

	// Only Update and Error use these, without the mutex: xds.Client and gRPC call them one at a
	// time.
	latest *picker.Config // the latest configuration, which may not be in force yet
	rpcs   rpcConfig      // of latest
}

func newBalancer(cc balancer.ClientConn, opts balancer.BuildOptions) *Balancer {
	b := &Balancer{channel: channel{rt: serial.New(), cc: cc, buildOpts: opts}, clusters: map[string]*cluster{}}
	b.adapt = adaptation{channel: &b.channel, subsetSeed: rand.Uint64()}
	b.publisher.init(&b.channel, &b.targetState)
	b.rec.init()
	return b
}

// UpdateClientConnState is called once with the channel's source, and again only if the
// resolver's state changes.
func (b *Balancer) UpdateClientConnState(s balancer.ClientConnState) error {
	src := SourceOf(s.ResolverState)
	if src == nil {
		return errors.New("xdslb: this LB policy requires xdslb's resolver")
	}
	b.lock()
	if b.rt.Closed() || b.src != nil {
		b.unlock()
		return nil
	}
	b.src, b.client, b.bootstrap = src, src.Client, src.Bootstrap
	b.id = identity{link: src.Channel, listener: src.Listener, authority: src.Authority, node: src.Node}
	b.setOptions(src.Options)
	b.rec.target = b.buildOpts.Target.String()
	b.rec.channel = []slog.Attr{slog.String("target", src.Channel.Target), slog.String("node", src.Node)}
	b.announce(connectivity.Connecting)
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
		src.Channel.AfterWaiting(stop)
		metrics.Stop()
	}
	return nil
}

// setOptions sets the channel's options.
func (b *Balancer) setOptions(opts *Options) {
	b.opts = opts
	b.rec.logger.Store(opts.Logger)
}

// ResolverError is called only if another resolver is in use.
func (b *Balancer) ResolverError(err error) { b.Error(err) }

// UpdateSubConnState is never called: SubConns have listeners.
func (b *Balancer) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle is called when the user wants the channel connected. Clusters that wait for RPCs
// connect to one endpoint each; the remaining clusters are already connecting. If the channel
// left idle mode because of an RPC, that RPC makes the connection.
func (b *Balancer) ExitIdle() {
	b.lock()
	defer b.unlock()
	if b.rt.Closed() || b.src != nil && b.src.Channel.ConsumeExitIdle() {
		return
	}
	for _, c := range b.clusters {
		if c.status() == picker.Idle {
			c.inUse.connectOneIdle()
			b.collectChange(c)
		}
	}
	b.out.publish = true
}

// Close releases all resources. gRPC closes the SubConns when the channel is closed; Close
// shuts them down if the channel only becomes idle.
func (b *Balancer) Close() {
	b.lock()
	b.rt.Close()
	b.closeClusters()
	b.publisher.close()
	weights.Close(b.rec.log)
	b.rec.log.Close()
	serial.Halt(&b.watch.timer)
	stop, metrics := b.stopWatch, b.rec.metrics
	b.unlock()
	if stop != nil {
		b.src.Channel.AfterWaiting(stop)
		metrics.Stop()
	}
}

// connectIdle connects an endpoint of an IDLE cluster, as an RPC to the cluster would. It does
// not publish if no endpoint starts to connect, as with a child policy: a publication would
// wake WaitReady for nothing.
func (b *Balancer) connectIdle(cluster string) {
	b.lock()
	defer b.unlock()
	if c := b.clusters[cluster]; !b.rt.Closed() && c != nil && c.status() == picker.Idle {
		c.inUse.connectOneIdle()
		b.collectChange(c)
	}
}

// lock begins an event. unlock ends the event and acts on its changes.
func (b *Balancer) lock() { b.rt.Lock() }

func (b *Balancer) unlock() {
	b.settle()
	b.rt.Unlock()
}

// after starts a timer in slot. Its expiry is an event.
func (b *Balancer) after(d time.Duration, slot **time.Timer, f func()) {
	b.rt.After(d, slot, func() {
		f()
		b.settle()
	})
}

// callThen is CallThen for a function that runs as an event.
func (b *Balancer) callThen(first, f func()) {
	b.rt.CallThen(first, func() {
		f()
		b.settle()
	})
}

// entry is how the lower layers of a cluster start later events at the top: states of SubConns,
// timers, calls of child policies.
type entry interface {
	// do takes the mutex and runs f, unless the balancer is closed, and ends the event. The
	// caller must not hold the mutex.
	do(f func())
	// end is like do, for events that must also be handled after the balancer is closed.
	end(f func())
	// after runs f as an event when a timer expires, unless the timer is stopped, or replaced
	// in its slot, before. The caller holds the mutex.
	after(d time.Duration, slot **time.Timer, f func())
}

// clusterEntry implements entry for the lower layers of a cluster.
type clusterEntry struct {
	b *Balancer
	c *cluster
}

// newCluster returns a cluster whose events enter at b.
func (b *Balancer) newCluster() *cluster {
	c := &cluster{channel: &b.channel}
	c.entry = &clusterEntry{b, c}
	return c
}

func (n *clusterEntry) do(f func()) {
	n.b.lock()
	defer n.b.unlock()
	if !n.b.rt.Closed() {
		f()
		n.b.collectChange(n.c)
	}
}

func (n *clusterEntry) end(f func()) {
	n.b.lock()
	defer n.b.unlock()
	f()
	n.b.collectChange(n.c)
}

func (n *clusterEntry) after(d time.Duration, slot **time.Timer, f func()) {
	n.b.after(d, slot, func() {
		f()
		n.b.collectChange(n.c)
	})
}

// collectChange has a cluster handle the marks of an event, and collects its change for settle.
func (b *Balancer) collectChange(c *cluster) {
	b.take(c, c.handleMarks(&eventContext{sessions: b.sessions, slow: b.slow()}))
}
