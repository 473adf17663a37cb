// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fakegrpc

import "sync"

// A queue runs calls one at a time, in the order in which they were added.
type queue struct {
	mu      sync.Mutex
	changed sync.Cond // calls, closed
	calls   []func()
	closed  bool
	done    chan struct{}
}

func newQueue() *queue {
	q := &queue{done: make(chan struct{})}
	q.changed.L = &q.mu
	go q.run()
	return q
}

func (q *queue) add(call func()) {
	q.mu.Lock()
	q.calls = append(q.calls, call)
	q.mu.Unlock()
	q.changed.Signal()
}

// close drops the pending calls and waits for the call in progress.
func (q *queue) close() {
	q.mu.Lock()
	q.closed, q.calls = true, nil
	q.mu.Unlock()
	q.changed.Signal()
	<-q.done
}

func (q *queue) run() {
	defer close(q.done)
	for {
		q.mu.Lock()
		for len(q.calls) == 0 && !q.closed {
			q.changed.Wait()
		}
		calls := q.calls
		q.calls = nil
		closed := q.closed
		q.mu.Unlock()
		if closed {
			return
		}
		for _, call := range calls {
			call()
		}
	}
}
