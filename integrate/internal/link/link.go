// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package link finds the resolver of a *grpc.ClientConn, and the state that interceptors have
// for it.
//
// A resolver cannot find out which channel it serves. The resolver and the holder of a
// *grpc.ClientConn share only one thing that differs between channels of the same target: the
// channel's service config. The resolver adds an entry for a method that does not exist, whose
// timeout is the number of a [Link], and Of reads it with grpc.ClientConn.GetMethodConfig. The
// entry stays as long as the resolver. Its retry policy has more attempts than any channel
// allows; gRPC reduces them to the channel's grpc.WithMaxCallAttempts.
//
// An object that resolver and interceptors share by closure cannot replace the entry: one value
// of DialOptions may serve several channels of one target, NewBuilder and the exported
// interceptors may be combined by hand, and StatusOf and Explain also serve channels without
// interceptors.
package link

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
	"github.com/xdslb/xdslb/picker"
)

// A Link leads from a channel to its resolver. It lives as long as the resolver. A channel that
// leaves idle mode has a new one. Any number of goroutines may use it.
type Link struct {
	Options
	id     time.Duration
	cc     atomic.Pointer[grpc.ClientConn] // in linkByChannel under this key; nil until Bind
	closed atomic.Bool
	// maxAttempts is the channel's grpc.WithMaxCallAttempts, set together with cc.
	maxAttempts     atomic.Int64
	exitIdlePending atomic.Bool // set by ExitIdle; gRPC's ExitIdle has not reached the LB policy yet
	// confirmed is closed by Confirm or Close. Only links made with Bypassed use it.
	confirmed chan struct{}
	confirm   sync.Once
}

// Options are immutable properties of a link.
type Options struct {
	// Target is the channel's target, for the log.
	Target string
	// Canonical is the target in the form of grpc.ClientConn.CanonicalTarget.
	Canonical string
	// Resolver is the channel's resolver.
	Resolver any
	// Interceptors is the state of interceptors for the channel. It is nil if they let all RPCs
	// of the channel pass.
	Interceptors any
	// Bypassed reports whether another package's resolver serves the channel: see Confirm.
	Bypassed bool
}

const (
	linkService = "xdslb.internal.Channel"
	linkMethod  = "Number" // no method of any server
)

var (
	lastLink      atomic.Int64
	linkByChannel sync.Map // *grpc.ClientConn to *Link, for channels that made an RPC
	// lastBinding is the entry of linkByChannel that is found without a look-up: the entry of the
	// oldest channel, which is usually the only channel.
	lastBinding atomic.Pointer[binding]
)

// binding is a channel and its link.
type binding struct {
	cc   *grpc.ClientConn
	link *Link
}

// New returns the link of a new resolver. Of does not find it before Register is called.
func New(opts Options) *Link {
	return &Link{Options: opts, id: time.Duration(lastLink.Add(1)) * time.Second, confirmed: make(chan struct{})}
}

// Confirm records that the other package's resolver has been built. Until then, or until Close,
// interceptors wait: if it cannot be built, this package's resolver may serve the channel.
func (l *Link) Confirm() { l.confirm.Do(func() { close(l.confirmed) }) }

// Number identifies the link in the process. It is above 0.
func (l *Link) Number() int64 { return int64(l.id / time.Second) }

// Register makes the link available to Of. From then on any goroutine may use the Resolver.
func (l *Link) Register() {
	l.recordExitIdle()
	l.register()
}

// MethodConfig returns the entry of the service config that names the link.
func (l *Link) MethodConfig() methodconfig.Config {
	return methodconfig.Config{
		Name:    []map[string]string{{"service": linkService, "method": linkMethod}},
		Timeout: fmt.Sprintf("%ds", l.id/time.Second),
		RetryPolicy: methodconfig.RetryPolicy(&picker.RetryPolicy{
			MaxAttempts: math.MaxInt32, BaseBackoff: time.Second, MaxBackoff: time.Second, On: []uint32{uint32(codes.Unavailable)},
		}),
	}
}

// Bind records that cc is the channel of the link and makes up to maxAttempts attempts at an
// RPC. Find calls it. After Close, or if Close is called later, the channel no longer leads to
// the link.
func (l *Link) Bind(cc *grpc.ClientConn, maxAttempts int) {
	l.maxAttempts.Store(int64(maxAttempts))
	l.cc.Store(cc)
	linkByChannel.Store(cc, l)
	lastBinding.CompareAndSwap(nil, &binding{cc, l})
	if l.closed.Load() {
		l.unbind(cc)
	}
}

// unbind removes the entries that lead from the channel to the link.
func (l *Link) unbind(cc *grpc.ClientConn) {
	linkByChannel.CompareAndDelete(cc, l)
	if b := lastBinding.Load(); b != nil && b.link == l {
		lastBinding.CompareAndSwap(b, nil)
	}
}

// Close ends the link with its resolver. It reports whether this is the first call.
func (l *Link) Close() (first bool) {
	l.unregister()
	first = !l.closed.Swap(true)
	l.Confirm()
	if cc := l.cc.Load(); cc != nil {
		l.unbind(cc)
	}
	return first
}

// Closed reports whether Close was called.
func (l *Link) Closed() bool { return l.closed.Load() }

// Succeeds reports whether the link may belong to a later resolver of previous's channel. This
// is the case if previous is closed and had the same target. The link then takes over its
// MaxAttempts.
func (l *Link) Succeeds(previous *Link) bool {
	if !previous.Closed() || previous.Canonical != l.Canonical {
		return false
	}
	l.maxAttempts.CompareAndSwap(0, previous.maxAttempts.Load())
	return true
}

// MaxAttempts returns the channel's grpc.WithMaxCallAttempts, or 0 before Bind.
func (l *Link) MaxAttempts() int { return int(l.maxAttempts.Load()) }

// ClientConn returns the channel of the link, or nil before Bind.
func (l *Link) ClientConn() *grpc.ClientConn { return l.cc.Load() }

// Of returns the channel's link, or nil if another package's resolver serves it or the channel is
// idle. It does not connect the channel.
func Of(cc *grpc.ClientConn) *Link {
	l, _ := named(cc)
	return l
}

// named returns the link that the channel's service config names, or nil, and the channel's
// grpc.WithMaxCallAttempts.
func named(cc *grpc.ClientConn) (l *Link, maxAttempts int) {
	m := cc.GetMethodConfig("/" + linkService + "/" + linkMethod)
	if m.Timeout == nil || m.RetryPolicy == nil {
		return nil, 0
	}
	// Without a link, the entry is another resolver's default for all methods.
	return first(cc.CanonicalTarget(), func(l *Link) bool { return l.id == *m.Timeout }), m.RetryPolicy.MaxAttempts
}

// Find returns the channel's link for an RPC, or nil if another package's resolver serves the
// channel. It requires at most a map look-up and does not allocate, except for the first RPC of
// a channel that is new or idle, which exitingIdle the channel.
func Find(ctx context.Context, cc *grpc.ClientConn) *Link {
	if b := lastBinding.Load(); b != nil && b.cc == cc {
		return b.link
	}
	if l, ok := linkByChannel.Load(cc); ok {
		return l.(*Link)
	}
	if !hasXDSScheme(cc) {
		return nil
	}
	for awake := false; ; {
		if l, maxAttempts := named(cc); l != nil {
			l.Bind(cc, maxAttempts)
			return l
		}
		state, bypassed := cc.GetState(), first(cc.CanonicalTarget(), isBypassed)
		switch {
		case state == connectivity.Idle && !awake:
			ExitIdle(ctx, cc)
			awake = true
		case bypassed != nil:
			select {
			case <-bypassed.confirmed:
			case <-ctx.Done():
			}
			if !bypassed.Closed() {
				return nil // the other resolver has not sent a service config yet
			}
		case state != connectivity.Idle && state != connectivity.Connecting:
			if state == connectivity.Ready {
				WarnOnce(nil, cc.Target(), "resolver", "the channel has interceptors of xdslb, and a resolver of another package, usually google.golang.org/grpc/xds. "+
					"Make the channel with integrate.NewClient, or with integrate.DialOptions.")
			}
			return nil
		case !cc.WaitForStateChange(ctx, state):
			return nil
		}
	}
}

// OfBypassed returns the link of a channel that another package's resolver serves, or nil. Until
// that resolver has sent a service config, the link may belong to another channel with the same
// target.
func OfBypassed(cc *grpc.ClientConn) *Link {
	switch l := Of(cc); {
	case l == nil:
		return first(cc.CanonicalTarget(), isBypassed)
	case l.Bypassed:
		return l
	}
	return nil
}

// hasXDSScheme reports whether the channel's target has one of our schemes.
func hasXDSScheme(cc *grpc.ClientConn) bool {
	target := cc.CanonicalTarget()
	return strings.HasPrefix(target, "xds:") || strings.HasPrefix(target, "xdslb:")
}
