// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/lbpolicy"
	"github.com/xdslb/xdslb/xds/resource"
)

var logger = grpclog.Component("xdslb")

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

// Options tune a Client. The zero value is what users get.
type Options struct {
	// DialOptions are added to what the bootstrap says about connections to
	// control planes.
	DialOptions []grpc.DialOption
	// Policies converts the load balancing policies of clusters (A52); nil
	// knows those of package lbpolicy. Clients with different ones share
	// nothing.
	Policies *lbpolicy.Registry
	// DNS resolves the names of LOGICAL_DNS clusters; nil is gRPC's "dns".
	DNS resolver.Builder
	// Filter knows HTTP filters besides those of package resource; see
	// resource.Options. It may be nil.
	Filter func(message string) *resource.FilterType

	// DropDeleted takes away a Listener or Cluster that a server deletes, as
	// A57 has it, unless the server has the feature ignore_resource_deletion
	// (A53). The default is A88's: the last version stays in force unless the
	// server has the feature fail_on_data_errors.
	DropDeleted bool
	// Linger is how long what nobody uses any more is kept up to date, so
	// that a channel that leaves idle mode finds its configuration; 0 is
	// 30 s, and less than 0 is not at all.
	Linger time.Duration
	// ResourceTimeout is how long a connected server may take to send a
	// resource; 0 is 15 s (A57), or 30 s for servers that have the feature
	// resource_timer_is_transient_error (A88).
	ResourceTimeout time.Duration
	// ConnectNotice is how long a connection may take until that counts as a
	// failure; 0 is 1 s. The attempt goes on.
	ConnectNotice time.Duration
	// BackoffBase and BackoffMax bound the wait between streams; 0 is 1 s
	// and 120 s.
	BackoffBase, BackoffMax time.Duration
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.Linger, 30*time.Second)
	set(&o.ConnectNotice, time.Second)
	set(&o.BackoffBase, time.Second)
	set(&o.BackoffMax, 120*time.Second)
	if o.DNS == nil {
		o.DNS = resolver.Get("dns")
	}
	return o
}

// Client talks to the servers of one bootstrap on behalf of all targets of the
// process: one ADS stream per server, and one decoded copy of each resource
// (D4). It must not be copied, is safe for concurrent use, and comes from
// [Acquire].
type Client struct {
	cfg    *bootstrap.Config
	opts   Options
	node   *corev3.Node
	known  map[string]*bootstrap.Server // by key: all of the bootstrap
	ctx    context.Context              // ends with the client
	cancel context.CancelFunc
	tasks  sync.WaitGroup // every goroutine of the client
	done   chan struct{}  // closed when they have ended

	users    int         // guarded by registry.mu
	lingerer *time.Timer // runs while users is 0; guarded by registry.mu

	// mu guards everything below and everything reachable from it. It is
	// the only lock of the package besides registry.mu, is held for no
	// longer than it takes to look at memory, and never while calling out.
	mu          sync.Mutex
	closed      bool
	entries     map[entryKey]*entry
	authorities map[authorityKey]*authority
	servers     map[string]*server  // by key: those with a stream, or trying
	channels    map[string]*channel // by key: those in use
	views       map[viewKey]*view
	touched     map[*view]chan struct{} // see response.apply; nil at other times
	log         []logLine               // see unlock
}

// logLine is a line for the log, and what writes it.
type logLine struct {
	write func(...any)
	text  string
}

// unlock releases mu, and then writes what was noted for the log meanwhile: the
// logger is the user's code.
func (c *Client) unlock() {
	lines := c.log
	c.log = nil
	c.mu.Unlock()
	for _, l := range lines {
		l.write(l.text)
	}
}

// infof notes a line for the log; mu is held.
func (c *Client) infof(format string, args ...any) {
	c.log = append(c.log, logLine{logger.Info, fmt.Sprintf(format, args...)})
}

// warnf is infof for warnings.
func (c *Client) warnf(format string, args ...any) {
	c.log = append(c.log, logLine{logger.Warning, fmt.Sprintf(format, args...)})
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
	if c.closed {
		return func() {}
	}
	v := c.view(viewKey{listener, authority})
	one := &watch{watcher: w}
	v.watches[one] = struct{}{}
	if v.lingerer != nil {
		v.lingerer.Stop()
		v.lingerer = nil
	}
	v.poke()
	return func() {
		c.mu.Lock()
		defer c.unlock()
		delete(v.watches, one)
		if len(v.watches) == 0 && !v.closed && v.lingerer == nil {
			v.linger()
		}
	}
}

// ResolveNow asks for another look-up of the names of all LOGICAL_DNS clusters
// (A74). It is a hint, for when connections fail, and does not wait.
func (c *Client) ResolveNow() {
	c.mu.Lock()
	defer c.unlock()
	for key, e := range c.entries {
		if key.typ == dnsType && e.lookup != nil {
			e.lookup.again()
		}
	}
}

// Conn returns the channel to a server, the one that ADS uses as well, for load
// reports; server is the Key of a server of the bootstrap, such as
// picker.LoadReporting's. The caller calls release once it is done with the
// channel, and does not close it.
func (c *Client) Conn(server string) (conn grpc.ClientConnInterface, release func(), err error) {
	cfg := c.known[server]
	if cfg == nil {
		return nil, nil, fmt.Errorf("xds: there is no server with key %q in the bootstrap", server)
	}
	c.mu.Lock()
	if c.closed {
		c.unlock()
		return nil, nil, fmt.Errorf("xds: the client is closed")
	}
	ch := c.channel(cfg)
	c.unlock()
	release = sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.unlock()
		c.releaseChannel(ch)
	})
	cc, err := ch.conn()
	if err != nil {
		release()
		return nil, nil, err
	}
	return cc, release, nil
}

// annotate adds to an error what a user needs to find the client in a control
// plane's log (T-XDS-18).
func (c *Client) annotate(err error) error {
	return fmt.Errorf("[xDS node id: %s]: %w", c.node.GetId(), err)
}

// resourceTimeout is how long s may take to send a resource.
func (c *Client) resourceTimeout(s *bootstrap.Server) time.Duration {
	switch {
	case c.opts.ResourceTimeout != 0:
		return c.opts.ResourceTimeout
	case s.ResourceTimerIsTransientError:
		return 30 * time.Second
	}
	return 15 * time.Second
}

// decodeOptions are what the bootstrap says about resources from s.
func (c *Client) decodeOptions(s *bootstrap.Server) resource.Options {
	return resource.Options{
		TrustedServer: s.TrustedXDSServer,
		Policies:      c.opts.Policies,
		CertProviders: func(name string) bool { _, ok := c.cfg.CertProviders[name]; return ok },
		Filter:        c.opts.Filter,
	}
}
