// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"slices"
	"sync"

	"google.golang.org/grpc/balancer"
)

// Tried are the connections that picks for an RPC have chosen. Any number of goroutines may
// use it. The zero value is empty, and must not be copied.
type Tried struct {
	mu    sync.Mutex
	conns []balancer.SubConn
	room  [2]balancer.SubConn // for the first
}

// Add notes what a pick has chosen.
func (t *Tried) Add(sc balancer.SubConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns == nil {
		t.conns = t.room[:0]
	}
	t.conns = append(t.conns, sc)
}

// Has reports whether a pick has chosen a connection.
func (t *Tried) Has(sc balancer.SubConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.conns, sc)
}
