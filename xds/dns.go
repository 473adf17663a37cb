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

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// addresses are what a name resolved to: at least one. Immutable.
type addresses struct{ list []netip.AddrPort }

// priorities presents the addresses as one endpoint of one nameless locality
// (A37, A61).
func (a *addresses) priorities(host string) []picker.Priority {
	return []picker.Priority{{Localities: []picker.Locality{{
		Weight: 1,
		Endpoints: picker.ListOf(picker.Endpoint{
			Addr:   a.list[0],
			Weight: 1,
			Extra:  &picker.EndpointExtra{Addrs: a.list[1:], Hostname: host},
		}),
	}}}}
}

// lookup resolves the host:port of a LOGICAL_DNS cluster for as long as it is
// in use, and puts the result into the cache. gRPC's resolver does the work; it
// limits its own rate, and retries after errors.
type lookup struct {
	c      *Client
	e      *entry
	cancel context.CancelFunc
	retry  chan struct{} // holds a token if another look-up was asked for
}

// resolveLocked starts a lookup for e, whose name is the target.
func (c *Client) resolveLocked(e *entry) *lookup {
	ctx, cancel := context.WithCancel(c.ctx)
	l := &lookup{c: c, e: e, cancel: cancel, retry: make(chan struct{}, 1)}
	c.lookups[l] = struct{}{}
	c.tasks.Go(func() { l.run(ctx) })
	return l
}

// stopLocked ends the lookup.
func (l *lookup) stopLocked() {
	l.cancel()
	delete(l.c.lookups, l)
}

// run owns the resolver, which may call back from Build and, until it is
// closed, at any time, so none of its methods is called with mu held.
func (l *lookup) run(ctx context.Context) {
	target := resolver.Target{URL: url.URL{Scheme: "dns", Path: "/" + l.e.key.name}}
	r, err := l.c.opts.DNS.Build(target, lookupConn{l: l}, resolver.BuildOptions{DisableServiceConfig: true})
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

func (l *lookup) again() {
	select {
	case l.retry <- struct{}{}:
	default:
	}
}

func (l *lookup) resolved(list []netip.AddrPort) {
	l.c.mu.Lock()
	defer l.c.unlock()
	// Names with several addresses tend to come back in another order each
	// time, which is no news: they are one endpoint.
	value := &addresses{list}
	if old, ok := l.e.value.(*addresses); ok && sameSet(old.list, list) {
		value = old
	}
	now := time.Now()
	l.c.acceptLocked(l.e, acceptedVersion{value: value, at: &now})
}

func (l *lookup) failed(err error) {
	l.c.mu.Lock()
	defer l.c.unlock()
	l.c.failLocked(l.e, failure{state: ReceivedError, err: fmt.Errorf("xds: resolving DNS name %q: %w", l.e.key.name, err), kind: eventlog.ErrorReceived})
}

// lookupConn is where the resolver reports to.
type lookupConn struct {
	resolver.ClientConn // for methods that gRPC may add
	l                   *lookup
}

// UpdateState implements resolver.ClientConn. Returning an error makes the
// resolver try again after a while.
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

// ParseServiceConfig implements resolver.ClientConn. Service configs in DNS are
// not for xDS clusters (A37).
func (cc lookupConn) ParseServiceConfig(string) *serviceconfig.ParseResult {
	return &serviceconfig.ParseResult{Err: errors.New("xds: service config is disabled")}
}

// sameSet reports whether a and b, both without duplicates, are equal but for
// their order.
func sameSet(a, b []netip.AddrPort) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x netip.AddrPort) bool { return !slices.Contains(b, x) })
}
