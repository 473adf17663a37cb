// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/xdslb/xdslb/xds/eventlog"
)

// lookups is the source of entries that hold the addresses of DNS names.
type lookups struct {
	core    *core
	cache   *cache
	running map[*entry]*nameLookups
}

// nameLookups are the lookups of an entry, one for each name.
type nameLookups struct {
	list   []*lookup
	cancel context.CancelFunc
}

// subscribeLocked implements source: it starts the lookups of an entry.
func (all *lookups) subscribeLocked(e *entry) {
	if all.running[e] != nil {
		return
	}
	ctx, cancel := context.WithCancel(all.core.ctx)
	running := &nameLookups{make([]*lookup, len(e.names.targets)), cancel}
	for i, name := range e.names.targets {
		l := &lookup{all: all, e: e, name: name, every: e.names.every, retry: make(chan struct{}, 1), answered: make(chan struct{}, 1)}
		running.list[i] = l
		all.core.tasks.Go(func() { l.run(ctx) })
	}
	all.running[e] = running
}

// unsubscribeLocked implements source. The lookups end when the entry leaves the cache.
func (all *lookups) unsubscribeLocked(*entry) {}

// forgetLocked implements source.
func (all *lookups) forgetLocked(e *entry) {
	all.running[e].cancel()
	delete(all.running, e)
}

// waitingLocked implements source.
func (all *lookups) waitingLocked(e *entry) error {
	return fmt.Errorf("xdslb: waiting for DNS name %q for %v", eventlog.Cut(e.key.name), time.Since(e.since).Round(time.Millisecond))
}

// resendLocked implements source.
func (all *lookups) resendLocked(*entry) {}

// againLocked repeats all lookups.
func (all *lookups) againLocked() {
	for _, running := range all.running {
		for _, l := range running.list {
			notify(l.retry)
		}
	}
}

// notify puts a token into a channel that holds one at most.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// lookup resolves a host:port of a cluster while its entry is in the cache, and stores the addresses
// there. gRPC's resolver limits its own rate, and retries after errors. With every, another resolver replaces
// it that long after its answer.
type lookup struct {
	all   *lookups
	e     *entry
	name  string
	every time.Duration // 0 for LOGICAL_DNS

	retry    chan struct{} // holds a token if another lookup was requested
	answered chan struct{} // holds a token after an answer

	// The latest answer. An error leaves the previous addresses in use.
	list []netip.AddrPort
	err  error
}

// run owns the resolvers, which may call back from Build and at any time until they are closed. So their
// methods are never called with mu held.
func (l *lookup) run(ctx context.Context) {
	for l.resolve(ctx) {
	}
}

// resolve runs one resolver, and reports whether another one is to replace it.
func (l *lookup) resolve(ctx context.Context) (again bool) {
	target := resolver.Target{URL: url.URL{Scheme: "dns", Path: "/" + l.name}}
	r, err := l.all.core.opts.DNS.Build(target, lookupConn{l: l}, resolver.BuildOptions{DisableServiceConfig: true})
	if err != nil {
		l.answer(nil, err)
		r = noResolver{}
	}
	defer r.Close()
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-l.retry:
			r.ResolveNow(resolver.ResolveNowOptions{})
		case <-l.answered:
			if l.every > 0 && due == nil {
				timer := time.NewTimer(l.every)
				defer timer.Stop()
				due = timer.C
			}
		case <-due:
			return true
		}
	}
}

// noResolver takes the place of a resolver that cannot be built.
type noResolver struct{}

func (noResolver) ResolveNow(resolver.ResolveNowOptions) {}
func (noResolver) Close()                                {}

// answer stores an answer, and publishes the addresses once there is an answer for every name.
func (l *lookup) answer(list []netip.AddrPort, err error) {
	notify(l.answered)
	core, e := l.all.core, l.e
	core.mu.Lock()
	defer core.unlock()
	running := l.all.running[e]
	if running == nil {
		return // the entry has left the cache
	}
	if l.err = nil; err != nil {
		l.err = fmt.Errorf("xdslb: resolving DNS name %q: %w", l.name, err)
	} else {
		l.list = list
	}
	old, _ := e.value.(*addresses)
	value := &addresses{of: map[string][]netip.AddrPort{}}
	same := old != nil
	var failed error
	for _, l := range running.list {
		if l.list == nil && l.err == nil {
			return
		}
		if failed == nil {
			failed = l.err
		}
		if l.list == nil {
			continue
		}
		// Resolvers tend to return several addresses in another order each time. That is no change.
		if same && sameSet(old.of[l.name], l.list) {
			l.list = old.of[l.name]
		} else {
			same = false
		}
		value.of[l.name] = l.list
	}
	if same {
		value = old
	}
	if len(value.of) > 0 && (failed == nil || !same) {
		now := time.Now()
		l.all.cache.acceptLocked(e, acceptedVersion{value: value, at: &now})
	}
	if failed != nil {
		l.all.cache.failLocked(e, failure{state: ReceivedError, err: failed, kind: eventErrorReceived})
	}
}

// lookupConn receives the results of the resolver.
type lookupConn struct {
	resolver.ClientConn // for methods that gRPC may add
	l                   *lookup
}

// UpdateState implements resolver.ClientConn. After an error the resolver retries with backoff.
func (cc lookupConn) UpdateState(s resolver.State) error {
	var list []netip.AddrPort
	seen := map[netip.AddrPort]struct{}{}
	add := func(addr string) {
		if a, err := netip.ParseAddrPort(addr); err == nil {
			a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
			if _, again := seen[a]; !again {
				seen[a] = struct{}{}
				list = append(list, a)
			}
		}
	}
	for _, e := range s.Endpoints {
		for _, a := range e.Addresses {
			add(a.Addr)
		}
	}
	for _, a := range s.Addresses {
		add(a.Addr)
	}
	if len(list) == 0 {
		cc.l.answer(nil, errors.New("no addresses"))
		return balancer.ErrBadResolverState
	}
	cc.l.answer(list, nil)
	return nil
}

// ReportError implements resolver.ClientConn.
func (cc lookupConn) ReportError(err error) { cc.l.answer(nil, err) }

// NewAddress implements resolver.ClientConn.
func (cc lookupConn) NewAddress(addrs []resolver.Address) {
	_ = cc.UpdateState(resolver.State{Addresses: addrs})
}

// ParseServiceConfig implements resolver.ClientConn. xDS clusters do not use service configs in
// DNS (A37).
func (cc lookupConn) ParseServiceConfig(string) *serviceconfig.ParseResult {
	return &serviceconfig.ParseResult{Err: errors.New("xdslb: service config is disabled")}
}

// sameSet reports whether a and b, both without duplicates, are equal but for their order.
func sameSet(a, b []netip.AddrPort) bool {
	sorted := func(list []netip.AddrPort) []netip.AddrPort {
		return slices.SortedFunc(slices.Values(list), netip.AddrPort.Compare)
	}
	return len(a) == len(b) && slices.Equal(sorted(a), sorted(b))
}
