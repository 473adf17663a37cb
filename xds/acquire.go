// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"log/slog"
	"reflect"
	"slices"
	"sync"

	"github.com/xdslb/xdslb/xds/bootstrap"
)

// registry holds the process's clients, by the fingerprint of their bootstrap. It is
// the one global variable that sharing needs.
var registry = struct {
	mu      sync.Mutex
	clients map[string][]*Client
	started uint64 // number of clients so far
}{clients: map[string][]*Client{}}

// Acquire returns the process's Client for a bootstrap and options, starting it if
// there is none. Equal options share a Client, and with it streams and resources;
// other options have a Client of their own, so that none is ignored. Options are
// equal if all their fields are: of DialOptions each element has to be the very
// same value, so a program makes them once; functions are told apart by their code.
//
// The Logger is the exception: a second stream to every control plane would be a high
// price for it. A client has one, the first that is not nil of all Acquires that
// share it. Who comes with another is told so, on the other, once.
//
// Each Acquire wants one [Client.Release].
func Acquire(cfg *bootstrap.Config, opts Options) *Client {
	cfg.LogTo(opts.Logger)
	c, differs := acquire(cfg, opts.withDefaults())
	if differs != "" {
		loggerOr(opts.Logger).Info("xdslb: another client of the same xDS servers, since an option differs", "option", differs, "node", c.NodeID())
	}
	if c.shareLogger(opts.Logger) {
		opts.Logger.Info("xdslb: the client of these xDS servers is shared, and writes to the Logger that it was given first", "node", c.NodeID())
	}
	return c
}

// acquire is Acquire; differs names an option if that is why there is one client
// more.
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

// difference returns the name of a field by which the options differ, "" if clients
// with either would do the same.
func (o Options) difference(p Options) string {
	a, b := reflect.ValueOf(o), reflect.ValueOf(p)
	for i := range a.NumField() {
		if a.Field(i).Type() != reflect.TypeFor[*slog.Logger]() && !same(a.Field(i), b.Field(i)) {
			return a.Type().Field(i).Name
		}
	}
	return ""
}

// same reports whether two values are equal, as far as one can tell.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func:
		return a.Pointer() == b.Pointer()
	case reflect.Slice:
		for i := range min(a.Len(), b.Len()) {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return a.Len() == b.Len()
	}
	return a.Comparable() && b.Comparable() && a.Equal(b)
}

// loggerOr returns the logger, or the default one of the process if it is nil.
func loggerOr(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.Default()
	}
	return l
}

// shareLogger considers the Logger of another Acquire of an existing client: the first one that is
// not nil is used. It reports whether that is another one, and the caller should log it.
func (c *Client) shareLogger(l *slog.Logger) (log bool) {
	if l == nil || c.logger.CompareAndSwap(nil, l) || c.logger.Load() == l {
		return false
	}
	return c.other.Swap(l) != l
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
		c.closeLocked()
		return
	}
	c.lingerTimer.StartLocked(c.opts.Linger, &registry.mu, c.closeLocked)
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
