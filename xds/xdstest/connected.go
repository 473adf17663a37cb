// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/stats"
)

// connections counts the open connections of a backend. It is a stats.Handler of the backend's
// server.
type connections struct {
	mu      sync.Mutex
	open    int
	changed chan struct{} // closed when open changes; nil without waiters
}

// Connections returns the number of open connections to the backend.
func (b *Backend) Connections() int {
	b.conns.mu.Lock()
	defer b.conns.mu.Unlock()
	return b.conns.open
}

// WaitConnected returns when each of the backends has an open connection. When ctx ends it
// returns an error that names a backend without one. A client that distributes its RPCs over
// its endpoints reaches all of them soon after; a test cannot expect that before.
func WaitConnected(ctx context.Context, backends ...*Backend) error {
	for _, b := range backends {
		for {
			open, changed := b.conns.watch()
			if open > 0 {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return fmt.Errorf("xdstest: backend %v has no connection: %w", b.Addr(), ctx.Err())
			}
		}
	}
	return nil
}

func (c *connections) watch() (open int, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.open, c.changed
}

// HandleConn implements stats.Handler.
func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s.(type) {
	case *stats.ConnBegin:
		c.open++
	case *stats.ConnEnd:
		c.open--
	}
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// TagConn implements stats.Handler.
func (c *connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// TagRPC implements stats.Handler.
func (c *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (c *connections) HandleRPC(context.Context, stats.RPCStats) {}
