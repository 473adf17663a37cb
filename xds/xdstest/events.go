// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"context"
	"fmt"
	"sync"
)

// events wakes waiters after each event.
type events struct {
	mu   sync.Mutex
	next chan struct{} // closed by the next event; nil without waiters
}

// notify signals an event.
func (e *events) notify() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next != nil {
		close(e.next)
		e.next = nil
	}
}

// wait returns once cond returns true. It calls cond initially and after each event, without a
// lock. If ctx ends first, the error contains what.
func (e *events) wait(ctx context.Context, what string, cond func() bool) error {
	for {
		e.mu.Lock()
		if e.next == nil {
			e.next = make(chan struct{})
		}
		next := e.next
		e.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("xdstest: waiting for %s: %w", what, ctx.Err())
		}
	}
}
