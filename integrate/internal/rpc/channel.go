// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/picker"
)

// A Channel is the state that interceptors, picks, the resolver and the LB policy of a channel
// share, for the life of the resolver. Any number of goroutines may use it, except that calls
// of NoteFailure and ForgetFailures must be serialised.
type Channel struct {
	*link.Link
	ChannelOptions
	Counters
	failures
	waiting
	table  atomic.Pointer[func() *Table] // nil before the first Publish
	looked atomic.Pointer[Plans]         // set by warnUnapplied
}

// ChannelOptions are immutable properties of a channel.
type ChannelOptions struct {
	// Waiting returns a description of the missing parts of the first configuration, "waiting
	// for ...", or nil if they are unknown. May be nil.
	Waiting func() error
	// Intercepted reports whether the channel was made with our interceptors.
	Intercepted bool
	// Throttle limits the retries of interceptors. Nil means no limit.
	Throttle *Throttle
	// Idempotent reports whether RPCs of a method may be made twice at the same time. Nil means
	// false for all methods.
	Idempotent func(method string) bool
	// Logger logs about the channel. Nil means slog.Default().
	Logger *slog.Logger
}

// Table is the part of a publication of a channel's balancer that interceptors use. It is
// immutable.
type Table struct {
	Snapshot *picker.Snapshot // nil while there is no configuration
	Err      error            // the reason why there is no configuration; nil before the first
	Config   *picker.Config   // that Snapshot was built from
	Plans    *Plans           // nil if no RPC needs an interceptor
	Budgets  []*Budget        // by cluster, nil for clusters without a limit; nil if no cluster has a limit
	Channel  *Channel         // nil in tests
	// ProbeFirst probes endpoints of a cluster, by its index, for their load, and returns the best, or
	// nil if the pick chooses. Nil if no cluster probes endpoints for each RPC.
	ProbeFirst func(ctx context.Context, cluster int32) *picker.EndpointState
}

// NewChannel returns the Channel of a new resolver. It cannot be found until Register is called.
func NewChannel(resolver link.Options, opts ChannelOptions) *Channel {
	ch := &Channel{ChannelOptions: opts}
	ch.waiting.event = make(chan struct{})
	resolver.Interceptors, resolver.Intercepted = ch, opts.Intercepted
	ch.Link = link.New(resolver)
	return ch
}

// Publish announces a first configuration, or an error, or a configuration after an error.
// table returns the table in force from then on. RPCs that wait for a configuration continue.
func (ch *Channel) Publish(table func() *Table) {
	ch.table.Store(&table)
	ch.waiting.wake(false)
}

// Published reports whether Publish was called.
func (ch *Channel) Published() bool { return ch.table.Load() != nil }

// Current returns the table in force, or nil before the first publication.
func (ch *Channel) Current() *Table {
	if table := ch.table.Load(); table != nil {
		return (*table)()
	}
	return nil
}

// Close ends the Channel with its resolver. RPCs that wait for it continue with the next
// Channel.
func (ch *Channel) Close() {
	if ch.Link.Close() {
		ch.waiting.wake(true)
	}
}

// tableOf returns the table that the channel's picks read at the moment, or nil if RPCs of the
// channel pass. It waits for a first configuration. An RPC that is wait-for-ready waits also
// while the target cannot be served, since until then its route is unknown. If ctx ends first,
// the error names the missing part of the configuration.
func tableOf(ctx context.Context, cc *grpc.ClientConn, opts []grpc.CallOption) (*Table, error) {
	ch := channelOf(ctx, cc)
	if ch == nil {
		return nil, nil
	}
	if t := ch.Current(); t != nil && t.Snapshot != nil {
		return t, nil
	}
	return waitForTable(ctx, cc, opts)
}

// channelOf returns the Channel of an RPC's channel, or nil if RPCs of the channel pass. See
// link.Find.
func channelOf(ctx context.Context, cc *grpc.ClientConn) *Channel {
	l := link.Find(ctx, cc)
	if l == nil {
		return nil
	}
	ch, _ := l.Interceptors.(*Channel)
	return ch
}

// withInfo adds the recorded ErrorInfo, if any, to an error. A nil Channel returns the error
// unchanged.
func (ch *Channel) withInfo(err error) error {
	if err == nil || ch == nil {
		return err
	}
	return ch.failures.withInfo(err)
}

// Counters count the actions of a channel's interceptors.
type Counters struct {
	retries, hedges     atomic.Uint64 // hedges are among retries
	noBudget, throttled atomic.Uint64
	_                   [0]sync.Mutex
}

// Retries returns how many attempts after the first were made.
func (c *Counters) Retries() uint64 { return c.retries.Load() }

// Hedges returns how many of the Retries were made while another attempt was in flight.
func (c *Counters) Hedges() uint64 { return c.hedges.Load() }

// RetriesDenied returns how many RPCs got no further attempt because of the cluster's budget, and
// because of the channel's throttling.
func (c *Counters) RetriesDenied() (budget, throttle uint64) {
	return c.noBudget.Load(), c.throttled.Load()
}
