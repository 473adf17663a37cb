// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package link finds the resolver of a *grpc.ClientConn, and the state that interceptors have
// for it.
//
// A resolver cannot find out which channel it serves. The resolver and the holder of a
// *grpc.ClientConn share only one thing that differs between channels of the same target: the
// channel's service config. The resolver adds an entry for a method that does not exist, whose
// timeout is the number of a [Link], and named reads it with grpc.ClientConn.GetMethodConfig.
// The entry's retry policy has more attempts than any channel allows; gRPC reduces them to the
// channel's grpc.WithMaxCallAttempts.
//
// The entry is there only until the channel is known, since every RPC pays for a service config
// with methods: gRPC looks for the method, for its service and for the default, which takes 75 ns
// (BenchmarkSelect in package bench). Once the channel is known, a table leads to the link, and
// the entry is removed. Channels of NewClient and DialOptions have it in their first service
// config, and the interceptor of the first RPC finds it. Other channels have it only while Of or
// Find search for a channel of the target that is not known yet. A channel that leaves idle mode
// has a new resolver, which is found in the same way.
package link

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
)

// A Link leads from a channel to its resolver. It lives as long as the resolver. A channel that
// leaves idle mode has a new one. Any number of goroutines may use it.
type Link struct {
	Options
	id     time.Duration
	cc     atomic.Pointer[grpc.ClientConn] // in channels under this key; nil until Bind
	closed atomic.Bool
	// intercepted is set once Find has returned the link.
	intercepted atomic.Bool
	// announced is set while the channel's service config has the entry. registered.Mutex guards
	// it.
	announced bool
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
	// Bypassed reports whether another package's resolver serves the channel: see Confirm. Its
	// service config always has the entry of the link, which costs nothing, since that resolver
	// selects the configurations of RPCs itself.
	Bypassed bool
	// Intercepted reports whether the channel was made with interceptors, so that its first RPC
	// calls Find. The service config has the entry until then.
	Intercepted bool
	// Update sends the service config again: its entry may have changed, see Append. It is called
	// from Find, Of and Bind, and may be nil if Bypassed is set.
	Update func()
}

const (
	linkService = "xdslb.internal.Channel"
	linkMethod  = "Number" // no method of any server
)

// linkMultiplier is the backoff multiplier in the entry of a link. Routes have 2.
const linkMultiplier = 1.5

var lastLink atomic.Int64

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
		Name:    linkName(),
		Timeout: fmt.Sprintf("%ds", l.id/time.Second),
		RetryPolicy: fmt.Appendf(nil, `{"maxAttempts":%d,"initialBackoff":"1s","maxBackoff":"1s","backoffMultiplier":%v,"retryableStatusCodes":["UNAVAILABLE"]}`,
			math.MaxInt32, linkMultiplier),
	}
}

// linkName returns the names of the entry.
func linkName() []map[string]string {
	return []map[string]string{{"service": linkService, "method": linkMethod}}
}

// Append returns the method configs of a channel's routes, and the entry of the link if the
// service config must have it. An entry of a route for the same method, which no server has, is
// left out then, since gRPC rejects service configs with duplicates. The resolver calls it whenever it
// sends a service config, and must not send an earlier result after a later one.
func (l *Link) Append(methods []methodconfig.Config) []methodconfig.Config {
	if !l.announce() {
		return methods
	}
	name := linkName()[0]
	others := make([]methodconfig.Config, 0, len(methods)+1)
	for _, m := range methods {
		if !slices.ContainsFunc(m.Name, func(n map[string]string) bool { return maps.Equal(n, name) }) {
			others = append(others, m)
		}
	}
	return append(others, l.MethodConfig())
}

// Bind records that cc is the channel of the link and makes up to maxAttempts attempts at an
// RPC, and removes the entry from the service config. Find and Of call it. After Close, or if
// Close is called later, the channel no longer leads to the link.
func (l *Link) Bind(cc *grpc.ClientConn, maxAttempts int) {
	l.maxAttempts.Store(int64(maxAttempts))
	l.cc.Store(cc)
	channels.set(cc, l)
	if l.closed.Load() {
		channels.remove(cc, l)
	}
	l.update()
}

// update calls Update, if there is one.
func (l *Link) update() {
	if l.Update != nil {
		l.Update()
	}
}

// Close ends the link with its resolver. It reports whether this is the first call.
func (l *Link) Close() (first bool) {
	l.unregister()
	first = !l.closed.Swap(true)
	l.Confirm()
	if cc := l.cc.Load(); cc != nil {
		channels.remove(cc, l)
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

// Intercepted reports whether the channel has interceptors: it was made with them, or Find has
// returned the link.
func (l *Link) Intercepted() bool { return l.Options.Intercepted || l.intercepted.Load() }

// Of returns the channel's link, or nil if another package's resolver serves it or the channel is
// idle. It does not connect the channel. If the channel is not known yet, and was not made with
// interceptors, it changes the service configs of all such channels of the target twice.
func Of(cc *grpc.ClientConn) *Link {
	if l := channels.find(cc); l != nil {
		return l
	}
	if !hasXDSScheme(cc) {
		return nil
	}
	defer search(cc)()
	return bindNamed(cc)
}

// named returns the link that the channel's service config names, or nil, and the channel's
// grpc.WithMaxCallAttempts.
func named(cc *grpc.ClientConn) (l *Link, maxAttempts int) {
	m := cc.GetMethodConfig("/" + linkService + "/" + linkMethod)
	if m.Timeout == nil || m.RetryPolicy == nil || m.RetryPolicy.BackoffMultiplier != linkMultiplier {
		return nil, 0 // a default of the target's routes, or nothing
	}
	// Without a link, the entry is another resolver's default for all methods.
	return first(cc.CanonicalTarget(), func(l *Link) bool { return l.id == *m.Timeout }), m.RetryPolicy.MaxAttempts
}

// bindNamed binds the link that the channel's service config names, and returns it. If there is
// none, it returns the link that another goroutine has just bound, or nil.
func bindNamed(cc *grpc.ClientConn) *Link {
	l, maxAttempts := named(cc)
	if l == nil {
		return channels.find(cc)
	}
	l.Bind(cc, maxAttempts)
	return l
}

// Find returns the channel's link for an RPC, or nil if another package's resolver serves the
// channel. It requires a look-up in a table and does not allocate, except for the first RPC of
// a channel that is new or idle, which makes the channel leave idle mode.
func Find(ctx context.Context, cc *grpc.ClientConn) *Link {
	l := channels.find(cc)
	if l == nil {
		if l = findNew(ctx, cc); l == nil {
			return nil
		}
	}
	if !l.intercepted.Load() {
		l.intercepted.Store(true)
	}
	return l
}

// findNew is Find for a channel that is not known yet.
func findNew(ctx context.Context, cc *grpc.ClientConn) *Link {
	if !hasXDSScheme(cc) {
		return nil
	}
	defer search(cc)()
	for awake := false; ; {
		if l := bindNamed(cc); l != nil {
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

// warned contains the lines that were logged, by target and kind.
var warned sync.Map

// WarnOnce logs a line about a target, unless a line of the same kind was logged about it before
// (D15). A nil Logger is slog.Default().
func WarnOnce(logger *slog.Logger, target, kind, line string, more ...any) {
	if _, again := warned.LoadOrStore([2]string{target, kind}, true); !again {
		LoggerOr(logger).Warn("xdslb: "+line, append([]any{"target", target}, more...)...)
	}
}

// LoggerOr returns a Logger, or slog.Default() if it is nil.
func LoggerOr(logger *slog.Logger) *slog.Logger {
	if logger == nil {
		return slog.Default()
	}
	return logger
}

// exitingIdle contains the channels that ExitIdle is waking: *grpc.ClientConn to chan struct{}, which is
// closed at the end.
var exitingIdle sync.Map

// ExitIdle makes a channel leave idle mode, for an RPC or WaitReady. gRPC offers only Connect for this,
// and reports it to the LB policy as the user's request to connect (ExitIdle), after it has built
// the resolver, and possibly after the first configuration. An RPC needs no endpoint but the one
// that it picks, so the link of that resolver records the call: see ConsumeExitIdle. ExitIdle does nothing if
// the channel is not idle.
func ExitIdle(ctx context.Context, cc *grpc.ClientConn) {
	done := make(chan struct{})
	if other, busy := exitingIdle.LoadOrStore(cc, done); busy {
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
		}
		return
	}
	defer func() {
		exitingIdle.Delete(cc)
		close(done)
	}()
	if cc.GetState() == connectivity.Idle && Of(cc) == nil {
		cc.Connect() // resolvers usually send their first state before this returns
	}
}

// recordExitIdle records whether ExitIdle builds the link's resolver. If two idle channels of one target are
// woken at the same time, one by ExitIdle and one by its user, the second may be taken for the first:
// its first RPC connects it then.
func (l *Link) recordExitIdle() {
	exitingIdle.Range(func(cc, _ any) bool {
		l.exitIdlePending.Store(cc.(*grpc.ClientConn).CanonicalTarget() == l.Canonical)
		return !l.exitIdlePending.Load()
	})
}

// ConsumeExitIdle reports whether a call of ExitIdle was caused by ExitIdle. It does so once for each link
// that ExitIdle created.
func (l *Link) ConsumeExitIdle() bool { return l.exitIdlePending.Swap(false) }
