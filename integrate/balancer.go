// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/xdslb/xdslb/picker"
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
	cc        balancer.ClientConn
	build     balancer.BuildOptions // for children
	channelID uint64                // random; what hash policies by channel id hash (A42)
	picker    stablePicker
	// subsetSeed is random; which endpoints the channel keeps of many (A68)
	// depends on it.
	subsetSeed uint64
	born       time.Time             // the zero of now
	draw       func(n uint32) uint32 // a uniform number below n
	standalone bool                  // without xDS

	mu       sync.Mutex
	closed   bool
	dial     func(netip.AddrPort) resolver.Address // the address to connect to
	opts     *Config
	src      *xdsResolver
	unwatch  func()
	cfg      *picker.Config // nil while the target cannot be served
	fatal    error          // why it cannot be
	clusters map[string]*cluster
	version  uint64         // of the latest cluster that changed
	plans    *plans         // of cfg
	heard    *picker.Config // the latest configuration, which may not be in force yet
	calls    calls          // of heard
	queued   int            // updates that wait for gRPC to be told of methods
	rewrites bool           // a route of cfg rewrites authorities (A81)
	sessions bool           // a route of cfg has session affinity (A55)

	// doomed closes the connections that have no endpoint any more, once no
	// published snapshot leads to them; see closeDoomed.
	doomed  []func()
	closing sync.WaitGroup
	// later is what to call once mu is free: LB policies of other packages,
	// which call back at once.
	later   []func()
	calling bool // a goroutine makes them
	// stranded says that SubConns left READY since gRPC was told a new
	// picker: RPCs that had picked one of them wait for it.
	stranded    bool
	announced   connectivity.State // what gRPC was last told
	nextPublish time.Time
	urgent      bool        // a cluster became READY that the snapshot calls otherwise
	pending     *time.Timer // runs while a publication is due
}

func newLB(cc balancer.ClientConn, opts balancer.BuildOptions) *lb {
	b := &lb{
		cc: cc, build: opts, clusters: map[string]*cluster{},
		channelID: rand.Uint64(), subsetSeed: rand.Uint64(), born: time.Now(), draw: rand.Uint32N,
		announced: connectivity.Shutdown, // nothing yet
		dial:      func(addr netip.AddrPort) resolver.Address { return resolver.Address{Addr: addr.String()} },
	}
	b.picker.wake = b.wake
	b.picker.current.Store(&published{})
	return b
}

func (b *lb) lock() { b.mu.Lock() }

// unlock ends a critical section, and has the calls made that had to wait for
// its end: by a goroutine of their own, since whoever unlocks may be called from
// within a mutex of the very policy that is to be called. There is one such
// goroutine at a time, so that calls keep their order.
func (b *lb) unlock() {
	if len(b.later) > 0 && !b.calling {
		b.calling = true
		go b.call()
	}
	b.mu.Unlock()
}

func (b *lb) call() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.later) > 0 {
		calls := b.later
		b.later = nil
		b.mu.Unlock()
		for _, call := range calls {
			call()
		}
		b.mu.Lock()
	}
	b.calling = false
}

// UpdateClientConnState comes once with the channel's source, and again only
// if the resolver's state changes.
func (b *lb) UpdateClientConnState(s balancer.ClientConnState) error {
	src := sourceOf(s.ResolverState)
	if src == nil {
		return errors.New("xdslb: this LB policy works with xdslb's resolver only")
	}
	b.lock()
	if b.closed || b.src != nil {
		b.unlock()
		return nil
	}
	b.src, b.opts = src, src.opts
	b.announce(connectivity.Connecting)
	b.unlock()
	stop := src.watch(b)
	b.lock()
	b.unwatch = stop
	closed := b.closed
	b.unlock()
	if closed {
		stop()
	}
	return nil
}

// Update implements xds.Watcher: a new configuration of the target. If gRPC has
// to be told something of methods, that comes first, so that no RPC is made by the
// new configuration and the old service config.
func (b *lb) Update(cfg *picker.Config) {
	b.lock()
	defer b.unlock()
	var tell func()
	if b.src != nil && (b.heard == nil || !sameCalls(b.heard, cfg)) {
		methods, expressed := methodConfigs(cfg)
		if !reflect.DeepEqual(methods, b.calls.methods) {
			tell = func() { b.src.configure(methods) }
		}
		b.calls = calls{methods, makePlans(cfg, expressed)}
	}
	b.heard = cfg
	plans := b.calls.plans
	b.inTurn(tell, func() { b.apply(cfg, plans) })
}

// calls is what a configuration's routes say about RPCs besides where they go:
// through gRPC's service config as far as that goes, the rest to interceptors.
type calls struct {
	methods []methodConfig
	plans   *plans
}

// inTurn does something to the balancer: at once, unless there is tell, which is
// to be called before, without the mutex, or what came earlier still waits for
// such a call.
func (b *lb) inTurn(tell, do func()) {
	switch {
	case b.closed:
	case tell == nil && b.queued == 0:
		do()
	default:
		b.queued++
		b.later = append(b.later, func() {
			if tell != nil {
				tell()
			}
			b.lock()
			defer b.unlock()
			if b.queued--; !b.closed {
				do()
			}
		})
	}
}

// apply takes over a configuration.
func (b *lb) apply(cfg *picker.Config, plans *plans) {
	b.plans = plans
	sent := cfg.Clusters
	cfg = b.adapt(cfg)
	b.cfg, b.fatal = cfg, nil
	b.rewriteAuthorities(slices.ContainsFunc(cfg.Routes, func(r picker.Route) bool { return r.AutoHostRewrite }))
	b.keepsSessions(b.plans.hasSessions())
	next := make(map[string]*cluster, len(cfg.Clusters))
	for i, cc := range cfg.Clusters {
		c := b.clusters[cc.Name]
		if c == nil {
			c = &cluster{lb: b}
		}
		if c.cfg != cc {
			c.update(cc)
		}
		c.sent = sent[i]
		next[cc.Name] = c
		delete(b.clusters, cc.Name)
	}
	b.dropClusters()
	b.clusters = next
	b.publishSoon()
}

// sameCalls reports whether two configurations have the same routes and
// filters.
func sameCalls(a, b *picker.Config) bool {
	return sameSlice(a.Routes, b.Routes) && sameSlice(a.Filters, b.Filters) && a.MaxStreamDuration == b.MaxStreamDuration
}

// sameSlice reports whether two slices are one.
func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Error implements xds.Watcher: the target cannot be served.
func (b *lb) Error(err error) {
	b.lock()
	defer b.unlock()
	b.inTurn(nil, func() {
		b.cfg, b.fatal = nil, plainError(err.Error())
		b.dropClusters()
		b.publishSoon()
	})
}

func (b *lb) dropClusters() {
	for name, c := range b.clusters {
		c.close()
		delete(b.clusters, name)
	}
}

// ResolverError is called only if another resolver is in use.
func (b *lb) ResolverError(err error) { b.Error(err) }

// UpdateSubConnState is never called: SubConns have listeners.
func (b *lb) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle is called when the user wants the channel connected. Clusters that
// wait for RPCs connect to one endpoint each; the others are at it anyway.
func (b *lb) ExitIdle() {
	b.lock()
	defer b.unlock()
	if b.closed {
		return
	}
	for _, c := range b.clusters {
		if c.status() == picker.Idle {
			c.inUse.rouse()
			c.onChange(c.inUse)
		}
	}
	b.publishSoon()
}

// Close releases everything. gRPC closes the SubConns with the channel; those
// of a channel that goes idle are closed here.
func (b *lb) Close() {
	b.lock()
	b.closed = true
	if b.pending != nil {
		b.pending.Stop()
	}
	b.dropClusters()
	b.closeDoomed()
	stop := b.unwatch
	b.unlock()
	if stop != nil {
		stop()
	}
}

// closeDoomed closes connections on a goroutine of its own: closing one whose peer
// takes nothing any more keeps gRPC waiting for 5 s, and neither configurations nor
// the states of other connections are to wait for that.
func (b *lb) closeDoomed() {
	if len(b.doomed) == 0 {
		return
	}
	doomed := b.doomed
	b.doomed, b.stranded = nil, true
	b.closing.Go(func() {
		for _, shut := range doomed {
			shut()
		}
	})
}
