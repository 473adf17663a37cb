// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// waiting are the RPCs that wait for a channel's configuration.
type waiting struct {
	mu      sync.Mutex
	event   chan struct{} // closed, and replaced, by Publish; closed for good by Close
	closed  bool
	rpcs    int
	release []func() // deferred by AfterWaiting
}

// wake lets RPCs that wait continue, for good if the channel is closed.
func (w *waiting) wake(closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = closed
	close(w.event)
	if !closed {
		w.event = make(chan struct{})
	}
}

// next returns a channel that the next call of wake closes.
func (w *waiting) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.event
}

// enter records that an RPC waits.
func (w *waiting) enter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rpcs++
}

// leave undoes enter. It does nothing on a nil Channel.
func (ch *Channel) leave() {
	if ch == nil {
		return
	}
	w := &ch.waiting
	w.mu.Lock()
	var release []func()
	if w.rpcs--; w.rpcs == 0 {
		release, w.release = w.release, nil
	}
	w.mu.Unlock()
	for _, f := range release {
		f()
	}
}

// AfterWaiting calls release, which releases the parts of the client that the resolver or the
// LB policy uses, once these are closed: now, or when no RPC waits for the first configuration
// any more. The next resolver of these RPCs uses the same parts.
func (w *waiting) AfterWaiting(release func()) {
	w.mu.Lock()
	wait := w.rpcs > 0
	if wait {
		w.release = append(w.release, release)
	}
	w.mu.Unlock()
	if !wait {
		release()
	}
}

// waitForTable is the slow path of tableOf. The channel may become idle meanwhile, since gRPC does
// not count the RPC yet. The RPC wakes the channel, and also holds the previous Channel, whose
// resources of the client the next resolver takes over.
func waitForTable(ctx context.Context, cc *grpc.ClientConn, opts []grpc.CallOption) (*Table, error) {
	var last, previous *Channel
	defer func() { last.leave(); previous.leave() }()
	for {
		ch := channelOf(ctx, cc)
		if ch == nil {
			return nil, nil
		}
		event := ch.waiting.next()
		t := ch.Current()
		if t != nil && (t.Snapshot != nil || !waitsForReady(opts)) {
			return t, nil // without a Snapshot, the pick returns the error
		}
		if ch != last {
			ch.enter()
			previous.leave()
			last, previous = ch, last
		}
		select {
		case <-event:
		case <-ctx.Done():
			return nil, ch.withInfo(ch.waitErr(ctx, t))
		}
	}
}

// waitErr returns the error of an RPC that ended while it waited for a configuration.
func (ch *Channel) waitErr(ctx context.Context, t *Table) error {
	code := status.FromContextError(ctx.Err()).Code()
	if t != nil && t.Err != nil {
		return status.Errorf(code, "latest balancer error: %v", t.Err) // gRPC's words
	}
	if ch.Waiting != nil {
		if err := ch.Waiting(); err != nil {
			return status.Errorf(code, "%v: %v", ctx.Err(), err)
		}
	}
	return status.Errorf(code, "xdslb: %v while waiting for a first configuration", ctx.Err())
}

// waitsForReady reports whether an RPC is wait-for-ready.
func waitsForReady(opts []grpc.CallOption) bool {
	wait := false
	for _, o := range opts {
		if o, ok := o.(grpc.FailFastCallOption); ok {
			wait = !o.FailFast
		}
	}
	return wait
}
