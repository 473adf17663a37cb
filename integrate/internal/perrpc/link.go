// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/picker"
)

// Link joins a channel's interceptors, which know the channel, with its LB policy, which knows
// the configuration. gRPC does not tell a resolver which channel it is for. The resolver and
// the holder of a *grpc.ClientConn have one thing in common that differs between channels of
// the same target: the channel's service config. The resolver adds an entry for a method that
// does not exist, whose timeout is the link's number, and LinkOf reads it with
// grpc.ClientConn.GetMethodConfig. The entry stays as long as the resolver, so nobody has to ask
// for it first. Its retry policy asks for more attempts than any channel allows; gRPC cuts that
// down to the channel's grpc.WithMaxCallAttempts.
//
// An object that resolver and interceptors share by closure cannot replace the entry: one value of
// DialOptions may serve several channels of one target, NewBuilder and the exported
// interceptors may be combined by hand, and StatusOf and Explain also serve channels without
// interceptors.
//
// A link lives as long as its resolver. A channel that leaves idle mode has a new one.
type Link struct {
	LinkOptions
	id     time.Duration
	cc     atomic.Pointer[grpc.ClientConn] // in linksOf under this key; nil until an interceptor has bound it
	table  atomic.Pointer[func() *Table]   // nil before the first configuration or error
	closed atomic.Bool
	// maxAttempts is the channel's grpc.WithMaxCallAttempts, known once cc is.
	maxAttempts atomic.Int64
	woken       atomic.Bool // by Wake, whose ExitIdle has not reached the LB policy yet

	mu      sync.Mutex
	event   chan struct{} // closed, and replaced, by Publish; closed for good by Close
	waiting int           // RPCs that wait for the first configuration
	release []func()      // what AfterWaiting has put off

	looked   atomic.Pointer[Plans] // by warnUnapplied
	failures failures
	retries  atomic.Uint64 // made by the interceptors, hedges among them
	hedges   atomic.Uint64
	// unmade are retries and hedges that there was no budget for, or that were throttled.
	unmade  struct{ budget, throttle atomic.Uint64 }
	refused atomic.Uint64 // RPCs, by admission control
	unsent  atomic.Uint64 // RPCs, by adaptive concurrency
}

// LinkOptions are what a link has to know of its resolver.
type LinkOptions struct {
	// Target is the channel's target, for the log.
	Target string
	// Canonical is the target as grpc.ClientConn.CanonicalTarget has it.
	Canonical string
	// Waiting says what the first configuration waits for: "waiting for ...". Nil is
	// nothing that is known.
	Waiting func() error
	// Intercepted says that the channel was made with our interceptors.
	Intercepted bool
	// Throttle is for the retries of interceptors; nil is none.
	Throttle *Throttle
	// Idempotent reports whether RPCs of a method may be made twice at the same time; nil
	// knows no method.
	Idempotent func(method string) bool
	// Logger has the lines about the channel; nil is slog.Default().
	Logger *slog.Logger
	// Resolver is the resolver, for whoever comes from a channel: see LinkOf.
	Resolver any
	// Aside says that the channel was handed to another package's resolver: interceptors
	// let its RPCs pass.
	Aside bool
}

const (
	linkService = "xdslb.internal.Channel"
	linkMethod  = "Number" // no method of any server
)

var (
	lastLink atomic.Int64
	links    sync.Map      // Link.id to *Link
	linksTo  linksByTarget // the same
	linksOf  sync.Map      // *grpc.ClientConn to *Link, of channels that made an RPC
	// lastBinding is an entry of linksOf that is found without a look-up: that
	// of the oldest channel left, usually the only one.
	lastBinding atomic.Pointer[binding]
)

// binding is a channel and its link.
type binding struct {
	cc   *grpc.ClientConn
	link *Link
}

// NewLink returns the link of a new resolver. It cannot be found until Register is called.
func NewLink(opts LinkOptions) *Link {
	return &Link{LinkOptions: opts, id: time.Duration(lastLink.Add(1)) * time.Second, event: make(chan struct{})}
}

// Number identifies the link in the process. It is above 0.
func (l *Link) Number() int64 { return int64(l.id / time.Second) }

// Register lets the link be found. From then on any goroutine may use the Resolver.
func (l *Link) Register() {
	l.noteWake()
	links.Store(l.id, l)
	linksTo.add(l.Canonical, l)
}

// MethodConfig returns the entry of the service config that names the link.
func (l *Link) MethodConfig() MethodConfig {
	return MethodConfig{
		Name:    []map[string]string{{"service": linkService, "method": linkMethod}},
		Timeout: fmt.Sprintf("%ds", l.id/time.Second),
		RetryPolicy: retryJSON(&picker.RetryPolicy{
			MaxAttempts: math.MaxInt32, BaseBackoff: time.Second, MaxBackoff: time.Second, On: []uint32{uint32(codes.Unavailable)},
		}),
	}
}

// Publish tells the link that there is a first configuration, or an error, or a
// configuration after an error. RPCs that wait for one of these look again.
func (l *Link) Publish(table func() *Table) {
	l.table.Store(&table)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed.Load() {
		close(l.event)
		l.event = make(chan struct{})
	}
}

// Retries returns how many attempts after the first the interceptors have made.
func (l *Link) Retries() uint64 { return l.retries.Load() }

// Hedges returns how many of those were made while others were under way.
func (l *Link) Hedges() uint64 { return l.hedges.Load() }

// Unmade returns how often there was no retry or hedge because of the cluster's budget, and
// because of the channel's throttling.
func (l *Link) Unmade() (budget, throttle uint64) {
	return l.unmade.budget.Load(), l.unmade.throttle.Load()
}

// Published reports whether Publish was called.
func (l *Link) Published() bool { return l.table.Load() != nil }

// Current returns the table in force, or nil before the first.
func (l *Link) Current() *Table {
	if table := l.table.Load(); table != nil {
		return (*table)()
	}
	return nil
}

// nextEvent returns a channel that is closed by the next Publish, or by Close.
func (l *Link) nextEvent() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.event
}

// enter notes that an RPC waits for the first configuration.
func (l *Link) enter() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting++
}

// leave ends what enter began. A nil Link has nothing to end.
func (l *Link) leave() {
	if l == nil {
		return
	}
	l.mu.Lock()
	var release []func()
	if l.waiting--; l.waiting == 0 {
		release, l.release = l.release, nil
	}
	l.mu.Unlock()
	for _, f := range release {
		f()
	}
}

// AfterWaiting calls release, which lets go of what the link's resolver or LB policy uses of
// the client, once these are closed: now, or when no RPC waits for the first configuration
// any more. Those that do so have the next resolver use the same.
func (l *Link) AfterWaiting(release func()) {
	l.mu.Lock()
	wait := l.waiting > 0
	if wait {
		l.release = append(l.release, release)
	}
	l.mu.Unlock()
	if !wait {
		release()
	}
}

// bind remembers that the link is cc's, which makes up to so many attempts. Whichever
// of bind and Close comes second removes the entry again.
func (l *Link) bind(cc *grpc.ClientConn, maxAttempts int) {
	l.maxAttempts.Store(int64(maxAttempts))
	l.cc.Store(cc)
	linksOf.Store(cc, l)
	lastBinding.CompareAndSwap(nil, &binding{cc, l})
	if l.closed.Load() {
		l.unbind(cc)
	}
}

// unbind removes what leads from the channel to the link.
func (l *Link) unbind(cc *grpc.ClientConn) {
	linksOf.CompareAndDelete(cc, l)
	if b := lastBinding.Load(); b != nil && b.link == l {
		lastBinding.CompareAndSwap(b, nil)
	}
}

// Close ends the link with its resolver. RPCs that wait for it look again.
func (l *Link) Close() {
	links.Delete(l.id)
	linksTo.remove(l.Canonical, l)
	l.mu.Lock()
	if !l.closed.Swap(true) {
		close(l.event)
	}
	l.mu.Unlock()
	if cc := l.cc.Load(); cc != nil {
		l.unbind(cc)
	}
}

// LinkOf returns the channel's link, or nil if its resolver is not ours or the channel is idle.
// It does not connect the channel.
func LinkOf(cc *grpc.ClientConn) *Link {
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
	found, ok := links.Load(*m.Timeout)
	if !ok || found.(*Link).Canonical != cc.CanonicalTarget() { // another resolver's default for all methods
		return nil, 0
	}
	return found.(*Link), m.RetryPolicy.MaxAttempts
}

// linkOf returns the channel's link for an RPC's interceptor, or nil if its resolver is not
// ours. It costs a map look-up at most and does not allocate, except for the first RPC of a
// channel that is new or was idle, which wakes it.
func linkOf(ctx context.Context, cc *grpc.ClientConn) *Link {
	if b := lastBinding.Load(); b != nil && b.cc == cc {
		return b.link
	}
	if l, ok := linksOf.Load(cc); ok {
		return l.(*Link)
	}
	if !mayBeOurs(cc) {
		return nil
	}
	for awake := false; ; {
		if l, maxAttempts := named(cc); l != nil {
			l.bind(cc, maxAttempts)
			return l
		}
		state := cc.GetState()
		switch {
		case state == connectivity.Idle && !awake:
			Wake(ctx, cc)
			awake = true
		case linksTo.aside(cc.CanonicalTarget()) != nil:
			return nil // the other resolver has not told gRPC a service config yet
		case state != connectivity.Idle && state != connectivity.Connecting:
			if state == connectivity.Ready {
				warnOtherResolver(cc.Target())
			}
			return nil
		case !cc.WaitForStateChange(ctx, state):
			return nil
		}
	}
}

// LinkAside returns the link of a channel that was handed to another package's resolver, or
// nil. Until that resolver has told gRPC a service config, the link may be that of another
// channel of the same target.
func LinkAside(cc *grpc.ClientConn) *Link {
	switch l := LinkOf(cc); {
	case l == nil:
		return linksTo.aside(cc.CanonicalTarget())
	case l.Aside:
		return l
	}
	return nil
}

// Channel returns the channel of the link, or nil before an interceptor has bound it.
func (l *Link) Channel() *grpc.ClientConn { return l.cc.Load() }

// mayBeOurs reports whether the channel's target has one of our schemes.
func mayBeOurs(cc *grpc.ClientConn) bool {
	target := cc.CanonicalTarget()
	return strings.HasPrefix(target, "xds:") || strings.HasPrefix(target, "xdslb:")
}
