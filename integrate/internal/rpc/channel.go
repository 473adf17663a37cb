// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/picker"
)

// A Channel is what interceptors, picks, the resolver and the LB policy of a channel share, for the
// life of the resolver. Any number of goroutines may use it, except that calls of NoteFailure and
// ForgetFailures must be serialised.
type Channel struct {
	*link.Link
	ChannelOptions
	Counters
	failures
	waiting
	table  atomic.Pointer[func() *Table] // nil before the first Publish
	looked atomic.Pointer[Plans]         // by warnUnapplied
}

// ChannelOptions are immutable properties of a channel.
type ChannelOptions struct {
	// Waiting returns what the first configuration waits for: "waiting for ...", or nil if that
	// is unknown. May be nil.
	Waiting func() error
	// Intercepted reports that the channel was made with our interceptors.
	Intercepted bool
	// Throttle limits the retries of interceptors. Nil is no limit.
	Throttle *Throttle
	// Idempotent reports whether RPCs of a method may be made twice at the same time. Nil is false
	// for all methods.
	Idempotent func(method string) bool
	// Logger logs about the channel. Nil is slog.Default().
	Logger *slog.Logger
}

// Table is what one publication of a channel's balancer has for interceptors. It is immutable.
type Table struct {
	Snapshot *picker.Snapshot // nil while there is no configuration
	Err      error            // why there is none; nil before the first
	Config   *picker.Config   // that Snapshot was built from
	Plans    *Plans           // nil if no RPC needs an interceptor
	Budgets  []*Budget        // by cluster, nil where retries are not limited; nil if none are
	Channel  *Channel         // nil in tests
	// Ask asks endpoints of a cluster, by its index, for their load, and returns the best, or nil
	// if the pick chooses. Nil if no cluster asks endpoints for each RPC.
	Ask func(ctx context.Context, cluster int32) *picker.EndpointState
}

// NewChannel returns the Channel of a new resolver. It cannot be found until Register is called.
func NewChannel(resolver link.Options, opts ChannelOptions) *Channel {
	ch := &Channel{ChannelOptions: opts}
	ch.waiting.event = make(chan struct{})
	resolver.Interceptors = ch
	ch.Link = link.New(resolver)
	return ch
}

// Publish announces a first configuration, or an error, or a configuration after an error. table
// returns the table in force from then on. RPCs that wait for it continue.
func (ch *Channel) Publish(table func() *Table) {
	ch.table.Store(&table)
	ch.waiting.wake(false)
}

// Published reports whether Publish was called.
func (ch *Channel) Published() bool { return ch.table.Load() != nil }

// Current returns the table in force, or nil before the first.
func (ch *Channel) Current() *Table {
	if table := ch.table.Load(); table != nil {
		return (*table)()
	}
	return nil
}

// Close ends the Channel with its resolver. RPCs that wait for it continue with the next one.
func (ch *Channel) Close() {
	if ch.Link.Close() {
		ch.waiting.wake(true)
	}
}

// withInfo adds the ErrorInfo of an error, if it has one. A nil Channel has none.
func (ch *Channel) withInfo(err error) error {
	if err == nil || ch == nil {
		return err
	}
	return ch.failures.withInfo(err)
}

// Counters count what the interceptors of a channel do.
type Counters struct {
	retries, hedges     atomic.Uint64 // hedges are among retries
	noBudget, throttled atomic.Uint64
	refused             atomic.Uint64 // RPCs, by admission control
	unsent              atomic.Uint64 // RPCs, by adaptive concurrency
	_                   [0]sync.Mutex
}

// Retries returns how many attempts after the first were made.
func (c *Counters) Retries() uint64 { return c.retries.Load() }

// Hedges returns how many of the Retries were made while another attempt was in flight.
func (c *Counters) Hedges() uint64 { return c.hedges.Load() }

// Unmade returns how many RPCs got no further attempt because of the cluster's budget, and because
// of the channel's throttling.
func (c *Counters) Unmade() (budget, throttle uint64) { return c.noBudget.Load(), c.throttled.Load() }

// Refused returns how many RPCs admission control has refused.
func (c *Counters) Refused() uint64 { return c.refused.Load() }

// Unsent returns how many RPCs adaptive concurrency has refused.
func (c *Counters) Unsent() uint64 { return c.unsent.Load() }
