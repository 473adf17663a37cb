// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package serial serializes the work of a balancer: one mutex, a queue of calls that must not
// run under it, and timers.
package serial

import (
	"sync"
	"time"
)

// Runtime is a mutex with a call queue, timers and a clock. It must not be copied. All methods
// but Lock, Now and TimeAt require the mutex.
//
// Calls to code of other packages go through the queue, because such code may call back at
// once, and may hold a mutex of its own while it does.
type Runtime struct {
	mu      sync.Mutex
	start   time.Time // the origin of Now
	closed  bool
	calls   []func() // queued
	running bool     // a goroutine runs calls
	waiting int      // functions of CallThen that have not run
}

// New returns a Runtime whose clock starts now.
func New() *Runtime { return &Runtime{start: time.Now()} }

// Lock takes the mutex.
func (r *Runtime) Lock() { r.mu.Lock() }

// Unlock releases the mutex and starts the queued calls. They run on a goroutine of their own,
// since the caller may hold a mutex of the code that is called. Only one such goroutine exists
// at a time, so that calls keep their order.
func (r *Runtime) Unlock() {
	if len(r.calls) > 0 && !r.running {
		r.running = true
		go r.run()
	}
	r.mu.Unlock()
}

func (r *Runtime) run() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.calls) > 0 {
		calls := r.calls
		r.calls = nil
		r.mu.Unlock()
		for _, call := range calls {
			call()
		}
		r.mu.Lock()
	}
	r.running = false
}

// Call queues f. f runs without the mutex, after all previously queued calls.
func (r *Runtime) Call(f func()) { r.calls = append(r.calls, f) }

// CallThen calls first, without the mutex, and then runs f with it. If first is nil and no
// earlier f is waiting, f runs at once. After Close f is skipped.
func (r *Runtime) CallThen(first, f func()) {
	switch {
	case r.closed:
	case first == nil && r.waiting == 0:
		f()
	default:
		r.waiting++
		r.Call(func() {
			if first != nil {
				first()
			}
			r.Lock()
			defer r.Unlock()
			if r.waiting--; !r.closed {
				f()
			}
		})
	}
}

// Waiting reports whether functions of CallThen are waiting for their turn.
func (r *Runtime) Waiting() bool { return r.waiting > 0 }

// Idle reports whether no call is queued or running.
func (r *Runtime) Idle() bool { return !r.running && len(r.calls) == 0 }

// After starts a timer in slot. Unless it is stopped or replaced by then, it empties the slot
// and runs f with the mutex held. It never expires at once: the race detector does not support
// that in bubbles of testing/synctest. After Close f is skipped.
func (r *Runtime) After(d time.Duration, slot **time.Timer, f func()) {
	var t *time.Timer
	t = time.AfterFunc(max(d, 1), func() {
		r.Lock()
		defer r.Unlock()
		if *slot != t || r.closed {
			return
		}
		*slot = nil
		f()
	})
	*slot = t
}

// Halt stops the timer in a slot, if any.
func Halt(slot **time.Timer) {
	if *slot != nil {
		(*slot).Stop()
		*slot = nil
	}
}

// Close ends timers and waiting functions. Queued calls still run.
func (r *Runtime) Close() { r.closed = true }

// Closed reports whether Close was called.
func (r *Runtime) Closed() bool { return r.closed }

// Now returns the nanoseconds since the Runtime was made, on a monotonic clock. It is above 0.
func (r *Runtime) Now() int64 { return int64(time.Since(r.start)) + 1 }

// TimeAt returns the time of day, in UTC, at a time of Now.
func (r *Runtime) TimeAt(now int64) time.Time {
	return r.start.Add(time.Duration(now - 1)).Round(0).UTC()
}

// Advance moves the clock forward.
func (r *Runtime) Advance(d time.Duration) { r.start = r.start.Add(-d) }
