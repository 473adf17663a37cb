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
)

// lookups is the source of entries that hold the addresses of DNS names.
type lookups struct {
	core    *core
	cache   *cache
	running map[*entry]*lookup
}

// subscribeLocked implements source: it starts the lookup of a name.
func (all *lookups) subscribeLocked(e *entry) {
	if all.running[e] != nil {
		return
	}
	ctx, cancel := context.WithCancel(all.core.ctx)
	l := &lookup{core: all.core, cache: all.cache, e: e, cancel: cancel, retry: make(chan struct{}, 1)}
	all.running[e] = l
	all.core.tasks.Go(func() { l.run(ctx) })
}

// unsubscribeLocked implements source. The lookup ends when the entry leaves the cache.
func (all *lookups) unsubscribeLocked(*entry) {}

// forgetLocked implements source.
func (all *lookups) forgetLocked(e *entry) {
	all.running[e].cancel()
	delete(all.running, e)
}

// waitingLocked implements source.
func (all *lookups) waitingLocked(e *entry) error {
	return fmt.Errorf("xdslb: waiting for DNS name %q for %v", e.key.name, time.Since(e.since).Round(time.Millisecond))
}

// resendLocked implements source.
func (all *lookups) resendLocked(*entry) {}

// againLocked repeats all lookups.
func (all *lookups) againLocked() {
	for _, l := range all.running {
		select {
		case l.retry <- struct{}{}:
		default:
		}
	}
}

// lookup resolves the host:port of a LOGICAL_DNS cluster while its entry is in the cache, and stores
// the addresses there. gRPC's resolver limits its own rate, and retries after errors.
type lookup struct {
	core   *core
	cache  *cache
	e      *entry
	cancel context.CancelFunc
	retry  chan struct{} // holds a token if another lookup was requested
}

// run owns the resolver, which may call back from Build and at any time until it is closed. So its
// methods are never called with mu held.
func (l *lookup) run(ctx context.Context) {
	target := resolver.Target{URL: url.URL{Scheme: "dns", Path: "/" + l.e.key.name}}
	r, err := l.core.opts.DNS.Build(target, lookupConn{l: l}, resolver.BuildOptions{DisableServiceConfig: true})
	if err != nil {
		l.failed(err)
		return
	}
	defer r.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.retry:
			r.ResolveNow(resolver.ResolveNowOptions{})
		}
	}
}

func (l *lookup) resolved(list []netip.AddrPort) {
	l.core.mu.Lock()
	defer l.core.unlock()
	// Resolvers tend to return several addresses in another order each time. That is no change,
	// since they are one endpoint.
	value := &addresses{list}
	if old, ok := l.e.value.(*addresses); ok && sameSet(old.list, list) {
		value = old
	}
	now := time.Now()
	l.cache.acceptLocked(l.e, acceptedVersion{value: value, at: &now})
}

func (l *lookup) failed(err error) {
	l.core.mu.Lock()
	defer l.core.unlock()
	l.cache.failLocked(l.e, failure{state: ReceivedError, err: fmt.Errorf("xdslb: resolving DNS name %q: %w", l.e.key.name, err), kind: eventErrorReceived})
}

// lookupConn receives the results of the resolver.
type lookupConn struct {
	resolver.ClientConn // for methods that gRPC may add
	l                   *lookup
}

// UpdateState implements resolver.ClientConn. After an error the resolver retries with backoff.
func (cc lookupConn) UpdateState(s resolver.State) error {
	var list []netip.AddrPort
	add := func(addr string) {
		if a, err := netip.ParseAddrPort(addr); err == nil {
			a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
			if !slices.Contains(list, a) {
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
		cc.l.failed(errors.New("no addresses"))
		return balancer.ErrBadResolverState
	}
	cc.l.resolved(list)
	return nil
}

// ReportError implements resolver.ClientConn.
func (cc lookupConn) ReportError(err error) { cc.l.failed(err) }

// NewAddress implements resolver.ClientConn.
func (cc lookupConn) NewAddress(addrs []resolver.Address) {
	_ = cc.UpdateState(resolver.State{Addresses: addrs})
}

// ParseServiceConfig implements resolver.ClientConn. xDS clusters do not use service configs in
// DNS (A37).
func (cc lookupConn) ParseServiceConfig(string) *serviceconfig.ParseResult {
	return &serviceconfig.ParseResult{Err: errors.New("xdslb: service config is disabled")}
}

// sameSet reports whether a and b, both without duplicates, are equal but for
// their order.
func sameSet(a, b []netip.AddrPort) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x netip.AddrPort) bool { return !slices.Contains(b, x) })
}
