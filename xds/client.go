// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/internal/timing"
)

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
	other atomic.Pointer[slog.Logger] // the latest Logger that is not in use; see shareLogger

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
		targets:     &targets{core: core, cache: cache, patches: &patches{core: core, cache: cache}, managers: map[targetKey]*dependencyManager{}},
		lookups:     &lookups{core: core, cache: cache, running: map[*entry]*nameLookups{}},
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

// ResolveNow requests another lookup of the names of all clusters of type LOGICAL_DNS and STRICT_DNS (A74). It does
// not wait. gRPC calls it for each connection that fails or is lost, so it takes only O(names),
// whatever the number of resources.
func (c *Client) ResolveNow() {
	c.mu.Lock()
	defer c.unlock()
	c.lookups.againLocked()
}

// Conn returns the channel to a server for load reports. ADS uses the same
// channel. server is the Key of a server of the bootstrap, as in
// picker.LoadReporting. The caller must call release after its last use of the
// channel, and must not close the channel.
func (c *Client) Conn(server string) (conn grpc.ClientConnInterface, release func(), err error) {
	cfg := c.pool.known[server]
	if cfg == nil {
		return nil, nil, fmt.Errorf("xdslb: the bootstrap has no server with key %q", server)
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

// LogLoadReports writes a warning to the Logger: load reports to a server, identified by its
// bootstrap.Server.Key, ended without a message from it. If err is nil, it writes that load is
// reported again. It does not wait for the Logger.
func (c *Client) LogLoadReports(server string, err error) {
	c.mu.Lock()
	defer c.unlock()
	about := logFields{server: c.pool.known[server], typ: noType, err: err}
	of := condition{server: about.server, kind: "load"}
	if err == nil {
		c.endLocked(of, "xdslb: load is reported to a server again", about)
		return
	}
	c.beginLocked(of, "xdslb: load cannot be reported to a server", about)
}

// LogLoadReportsEnded writes a line to the Logger: a stream of load reports to a server, identified
// by its bootstrap.Server.Key, has ended after a message from it. It does not wait for the Logger.
// Servers may end streams at any time, so the line is a warning only if the reason is neither io.EOF
// nor a lost connection. Then the server has probably refused a report, whose counts are lost.
func (c *Client) LogLoadReportsEnded(server string, err error) {
	level := slog.LevelWarn
	if code := status.Code(err); errors.Is(err, io.EOF) || code == codes.Unavailable || code == codes.Canceled {
		level = slog.LevelInfo
	}
	c.mu.Lock()
	defer c.unlock()
	c.logLocked(level, "xdslb: the stream of load reports to a server ended", logFields{server: c.pool.known[server], typ: noType, err: err})
}
