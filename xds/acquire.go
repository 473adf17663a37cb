// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/xdslb/xdslb/xds/bootstrap"
)

// registry holds the clients of the process, by the fingerprint of their bootstrap.
var registry = struct {
	mu      sync.Mutex
	clients map[string][]*Client
	started uint64 // number of clients so far
}{clients: map[string][]*Client{}}

// Acquire returns the Client of the process for a bootstrap and options, starting it if
// necessary. A separate Client opens another stream to every control plane, so Clients are shared
// unless the options require separate connections or accept different resources: DialOptions,
// Policies, DNS, Filter, AcceptHostnames, ConnectFailureAfter, BackoffBase and BackoffMax. Elements of DialOptions are
// equal only if they are the same value, so a program should create them once. Functions are
// compared by their code.
//
// Users of a Client with different values of other fields share it as follows. Each difference is
// logged.
//
//   - Linger, ResourceTimeout and ReconnectSpread: the longest value counts.
//   - Delta: incremental ADS is used, from the next stream on, if any user requests it.
//   - Logger: the first one that is not nil is used.
//   - TargetOptions: each target has its own.
//
// Each call of Acquire requires a call of [Client.Release].
func Acquire(cfg *bootstrap.Config, opts Options) *Client {
	cfg.LogTo(opts.Logger)
	c, differs := acquire(cfg, opts.withDefaults())
	if differs != "" {
		loggerOr(opts.Logger).Info("xdslb: opening another stream to the same xDS servers, since an option differs", "option", differs, "node", c.nodeID())
	}
	if c.shareLogger(opts.Logger) {
		opts.Logger.Info("xdslb: the client of these xDS servers is shared and uses its first Logger", "node", c.nodeID())
	}
	return c
}

// acquire is Acquire without logging. differs is the name of an option if that is the reason for
// another client.
func acquire(cfg *bootstrap.Config, opts Options) (c *Client, differs string) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	key := cfg.Fingerprint()
	for _, other := range registry.clients[key] {
		if d := opts.difference(other.opts); d != "" {
			differs = d
			continue
		}
		other.lingerTimer.StopLocked()
		other.combine(&opts, other.users == 0)
		other.users++
		return other, ""
	}
	c = newClient(cfg, opts)
	c.users = 1
	registry.started++
	c.number = registry.started
	registry.clients[key] = append(registry.clients[key], c)
	return c, differs
}

// combine adds the options of another user to those in force. They replace those of previous users
// if alone is set.
func (c *Client) combine(opts *Options, alone bool) {
	c.mu.Lock()
	defer c.unlock()
	switch {
	case alone:
		c.combined = combinedOf(opts)
	case c.combined.add(opts):
		c.logLocked(slog.LevelInfo, "xdslb: channels with different options share the client of these xDS servers: it uses the longest times, "+
			"and incremental ADS if any of them requests it", logFields{typ: noType})
	}
}

// loggerOr returns the logger, or the default one of the process if it is nil.
func loggerOr(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.Default()
	}
	return l
}

// shareLogger considers the Logger of another Acquire of an existing client: the first Logger
// that is not nil is used. It reports whether l is a different Logger, which the caller should
// log.
func (c *Client) shareLogger(l *slog.Logger) (log bool) {
	if l == nil || c.logger.CompareAndSwap(nil, l) || c.logger.Load() == l {
		return false
	}
	return c.other.Swap(l) != l
}

// Release ends the use of a Client. Options.Linger after the last one, the Client closes its streams
// and connections and ends its goroutines. No Watcher is called after that.
func (c *Client) Release() {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	c.users--
	if c.users > 0 {
		return
	}
	c.mu.Lock()
	linger := c.combined.linger
	c.mu.Unlock()
	if linger < 0 {
		c.closeLocked()
		return
	}
	c.lingerTimer.StartLocked(linger, &registry.mu, c.closeLocked)
}

// closeLocked closes a client without users, and removes it from the registry. The caller holds registry.mu.
func (c *Client) closeLocked() {
	key := c.cfg.Fingerprint()
	registry.clients[key] = slices.DeleteFunc(registry.clients[key], func(other *Client) bool { return other == c })
	if len(registry.clients[key]) == 0 {
		delete(registry.clients, key)
	}
	c.close()
}
