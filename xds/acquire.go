// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"sync"
	"time"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/lbpolicy"
)

// registry holds the process's clients. It is the one global variable that
// sharing needs.
var registry = struct {
	mu      sync.Mutex
	clients map[clientKey]*Client
}{clients: map[clientKey]*Client{}}

// clientKey says which channels share a client: those to which a resource means
// the same.
type clientKey struct {
	bootstrap string // fingerprint
	policies  *lbpolicy.Registry
}

// Acquire returns the process's Client for a bootstrap and [Options.Policies],
// starting it if there is none. The other options are those of the first to ask. Each Acquire wants one
// [Client.Release].
func Acquire(cfg *bootstrap.Config, opts Options) *Client {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	key := clientKey{cfg.Fingerprint(), opts.Policies}
	c := registry.clients[key]
	if c == nil {
		c = newClient(cfg, opts.withDefaults())
		registry.clients[key] = c
	}
	if c.lingerer != nil {
		c.lingerer.Stop()
		c.lingerer = nil
	}
	c.users++
	return c
}

func newClient(cfg *bootstrap.Config, opts Options) *Client {
	c := &Client{
		cfg:         cfg,
		opts:        opts,
		node:        cfg.Node(),
		known:       map[string]*bootstrap.Server{},
		entries:     map[entryKey]*entry{},
		authorities: map[authorityKey]*authority{},
		servers:     map[string]*server{},
		channels:    map[string]*channel{},
		views:       map[viewKey]*view{},
		done:        make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	note := func(servers []*bootstrap.Server) {
		for _, s := range servers {
			c.known[s.Key()] = s
		}
	}
	note(cfg.Servers)
	for _, a := range cfg.Authorities {
		note(a.Servers)
	}
	return c
}

// Release gives up one Acquire. Some time after the last, see Options.Linger,
// the Client closes its streams and connections and ends its goroutines; no
// Watcher is called after that.
func (c *Client) Release() {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	c.users--
	if c.users > 0 {
		return
	}
	if c.opts.Linger < 0 {
		c.retire()
		return
	}
	var t *time.Timer
	t = time.AfterFunc(c.opts.Linger, func() {
		registry.mu.Lock()
		defer registry.mu.Unlock()
		if c.lingerer == t {
			c.retire()
		}
	})
	c.lingerer = t
}

// retire closes a client without users; registry.mu is held.
func (c *Client) retire() {
	c.lingerer = nil
	if key := (clientKey{c.cfg.Fingerprint(), c.opts.Policies}); registry.clients[key] == c {
		delete(registry.clients, key)
	}
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return
	}
	for _, v := range c.views {
		v.close()
	}
	for _, e := range c.entries {
		e.stop()
	}
	for _, s := range c.servers {
		s.close()
	}
	c.closed = true
	c.cancel()
	go func() {
		c.tasks.Wait()
		close(c.done)
	}()
}
