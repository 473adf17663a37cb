// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/lbpolicy"
	"github.com/xdslb/xdslb/xds/resource"
)

// Watcher receives one target's configuration. Its methods are called one at
// a time, from a goroutine of the Client's that holds no lock, so they may
// call anything of this package. While one runs, later configurations of the
// same target replace each other, and the servers that sent them are held back
// for a while.
type Watcher interface {
	// Update delivers a complete configuration, to be used from now on.
	Update(*picker.Config)
	// Error says that the target cannot be served at all, and why. It is
	// over with the next Update. A target that has been served is not taken
	// away for lack of a control plane.
	Error(error)
}

// Options tune a Client. The zero value is ready to use; package integrate has other
// defaults for Linger and DropDeleted.
type Options struct {
	// DialOptions are added to what the bootstrap says about connections to
	// control planes. They must not be changed any more; see Acquire for who
	// shares a Client.
	DialOptions []grpc.DialOption
	// Policies converts the load balancing policies of clusters (A52); nil
	// knows those of package lbpolicy.
	Policies *lbpolicy.Registry
	// DNS resolves the names of LOGICAL_DNS clusters; nil is gRPC's "dns".
	DNS resolver.Builder
	// Filter knows HTTP filters besides those of package resource; see
	// resource.Options. It may be nil.
	Filter func(message string) *resource.FilterType

	// LocalCluster is the name of the EDS resource with the endpoints of the client's own
	// fleet, whose zones zone-aware routing goes by (Envoy's local_cluster_name). It is
	// subscribed to while a cluster in use asks for that. Empty is unknown.
	LocalCluster string

	// DropDeleted takes away a Listener or Cluster that a server deletes, as
	// A57 has it, unless the server has the feature ignore_resource_deletion
	// (A53). The default is A88's: the last version stays in force unless the
	// server has the feature fail_on_data_errors.
	DropDeleted bool
	// Delta has all servers spoken to in the incremental variant of ADS, as the
	// server feature xdslb.delta_ads has one (see package bootstrap). A server that
	// does not implement it is spoken to in the other.
	Delta bool
	// Linger is how long what nobody uses any more is kept up to date, so
	// that a channel that leaves idle mode finds its configuration; 0 is
	// 30 s, and less than 0 is not at all.
	Linger time.Duration
	// ResourceTimeout is how long a connected server may take to send a
	// resource; 0 is 15 s (A57), or 30 s for servers that have the feature
	// resource_timer_is_transient_error (A88).
	ResourceTimeout time.Duration
	// ConnectFailureAfter is how long a connection may take until that counts as a
	// failure; 0 is 1 s. The attempt goes on. A time in which the process itself stood
	// still counts as a tenth of that at most.
	ConnectFailureAfter time.Duration
	// BackoffBase and BackoffMax bound the wait between streams; 0 is 1 s
	// and 120 s.
	BackoffBase, BackoffMax time.Duration
	// ReconnectSpread is over how long a client spreads its return to a server
	// at random, if it has all that it needs in its cache: updates are that late. A client
	// that lacks a resource, or starts to, does not wait for that. It is for fleets so large
	// that a control plane cannot serve them within seconds. 0 is no more than BackoffBase:
	// after a stream that had a response the next one begins within that.
	ReconnectSpread time.Duration

	// Logger has the client's lines: at WARN invalid resources (NACKs), servers that
	// cannot be reached, fallbacks, deletions, and resources that do not come; at
	// INFO what is over again. Nil is slog.Default(). Equal lines are written once
	// in a minute. It does not divide clients; see Acquire.
	Logger *slog.Logger

	// MaxHashBytes bounds the memory of the hash rings and Maglev tables of one
	// target; 0 is 64 MiB. Where the clusters would take more, the largest of
	// them are made smaller.
	MaxHashBytes uint64
}

func (o Options) withDefaults() Options {
	o.Linger = cmp.Or(o.Linger, 30*time.Second)
	o.ConnectFailureAfter = cmp.Or(o.ConnectFailureAfter, time.Second)
	o.BackoffBase = cmp.Or(o.BackoffBase, time.Second)
	o.BackoffMax = cmp.Or(o.BackoffMax, 120*time.Second)
	o.MaxHashBytes = cmp.Or(o.MaxHashBytes, defaultMaxHashBytes)
	if o.DNS == nil {
		o.DNS = resolver.Get("dns")
	}
	return o
}

// Client talks to the servers of one bootstrap on behalf of all targets of the process that have
// the same Options, with one ADS stream per server and one decoded copy of each resource (D4). It
// must not be copied, is safe for concurrent use, and comes from [Acquire].
type Client struct {
	*core
	cache       *cache
	targets     *targets
	lookups     *lookups
	authorities *authorities
	pool        *pool

	done  chan struct{}               // closed when all goroutines have ended
	other atomic.Pointer[slog.Logger] // the latest other Logger; see shareLogger

	counted   map[ResourceKind]int // see CountResources
	countedAt uint64               // the value of core.changes then

	// Guarded by registry.mu.
	number      uint64       // in the order of Acquire
	users       int          // calls of Acquire without Release
	lingerTimer timing.Timer // runs while users is 0
}

func newClient(cfg *bootstrap.Config, opts Options) *Client {
	core := newCore(cfg, opts)
	cache := &cache{core: core, entries: map[entryKey]*entry{}}
	pool := newPool(core, cache)
	c := &Client{
		core:        core,
		cache:       cache,
		targets:     &targets{core: core, cache: cache, managers: map[targetKey]*dependencyManager{}},
		lookups:     &lookups{core: core, cache: cache, running: map[*entry]*lookup{}},
		authorities: &authorities{core: core, cache: cache, pool: pool, all: map[authorityKey]*authority{}},
		pool:        pool,
		done:        make(chan struct{}),
	}
	cache.sourceOf = c.sourceLocked
	return c
}

// sourceLocked returns the source of an entry.
func (c *Client) sourceLocked(key entryKey) (source, error) {
	if key.typ == dnsType {
		return c.lookups, nil
	}
	a, err := c.authorities.authorityLocked(key.name)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// close ends the watches, streams and goroutines.
func (c *Client) close() {
	c.mu.Lock()
	defer c.unlock()
	if c.ctx.Err() != nil {
		return
	}
	c.targets.closeLocked()
	c.cache.closeLocked()
	c.pool.closeAllLocked()
	c.cancel()
	go func() {
		c.tasks.Wait()
		close(c.done)
	}()
}

// Watch follows the target whose Listener has the given name, and whose virtual
// host is chosen by authority. The Watcher hears of the configuration, or of
// why there is none, as soon as either is known. Watches of the same target
// share all work.
//
// cancel ends the watch. It does not wait: a call of the Watcher that has begun
// when cancel is called may still be running when cancel returns, so cancel
// may be called with any lock held, and from within such a call.
func (c *Client) Watch(listener, authority string, w Watcher) (cancel func()) {
	c.mu.Lock()
	defer c.unlock()
	if c.ctx.Err() != nil {
		return func() {}
	}
	m, one := c.targets.watchLocked(targetKey{listener, authority}, w)
	return func() {
		c.mu.Lock()
		defer c.unlock()
		c.targets.unwatchLocked(m, one)
	}
}

// Waiting says why a target that is watched has no configuration: which resource of
// which server it waits for, and how long already, or what is wrong with it. It is
// nil if the target has a configuration, or is not watched. It is what RPCs
// that end before there is one can say.
func (c *Client) Waiting(listener, authority string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.targets.managers[targetKey{listener, authority}]; m != nil {
		return m.waitingLocked()
	}
	return nil
}

// ResolveNow asks for another look-up of the names of all LOGICAL_DNS clusters
// (A74). It is a hint, for when connections fail, and does not wait. gRPC gives it for each
// connection that fails or is lost, so it costs what there is to look up, not what there is.
func (c *Client) ResolveNow() {
	c.mu.Lock()
	defer c.unlock()
	c.lookups.againLocked()
}

// Conn returns the channel to a server, the one that ADS uses as well, for load
// reports; server is the Key of a server of the bootstrap, such as
// picker.LoadReporting's. The caller calls release once it is done with the
// channel, and does not close it.
func (c *Client) Conn(server string) (conn grpc.ClientConnInterface, release func(), err error) {
	cfg := c.pool.known[server]
	if cfg == nil {
		return nil, nil, fmt.Errorf("xds: there is no server with key %q in the bootstrap", server)
	}
	c.mu.Lock()
	if c.ctx.Err() != nil {
		c.unlock()
		return nil, nil, errClosed
	}
	ch := c.pool.channelLocked(cfg)
	c.unlock()
	release = sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.unlock()
		c.pool.releaseChannelLocked(ch)
	})
	cc, err := ch.conn()
	if err != nil {
		release()
		return nil, nil, err
	}
	return cc, release, nil
}

// Events returns the latest events of a target, oldest first, up to [eventlog.Size]. It is
// empty if the target is not watched. Shared events are in the journal of each target that they
// concern: an event about a resource in those of the targets that depend on it, an event about a
// server in those of the targets with resources from it. Repeated events, as while a server
// cannot be reached, are one event.
func (c *Client) Events(listener, authority string) []eventlog.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.targets.managers[targetKey{listener, authority}]; m != nil {
		return m.journal.Events()
	}
	return nil
}

// LogLoadReports writes a warning to the Logger: load reports to a server, identified by its
// bootstrap.Server.Key, ended without a message from it. It does not wait for the Logger.
func (c *Client) LogLoadReports(server string, err error) {
	c.mu.Lock()
	defer c.unlock()
	c.logLocked(slog.LevelWarn, "xdslb: load cannot be reported to a server", fact{server: c.pool.known[server], typ: noType, err: err})
}
