// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xdslb/xdslb/xds/bootstrap"
)

// authorities holds the authorities of a Client (A47).
type authorities struct {
	core  *core
	cache *cache
	pool  *pool
	all   map[authorityKey]*authority
}

// authorityLocked returns the authority of the resource with the given canonical name.
func (as *authorities) authorityLocked(name string) (*authority, error) {
	key := authorityOf(name)
	a := as.all[key]
	if a == nil {
		chain, err := as.core.cfg.ServersFor(name)
		if err != nil {
			return nil, err
		}
		a = &authority{core: as.core, cache: as.cache, pool: as.pool, chain: chain, entries: map[*entry]struct{}{}}
		as.all[key] = a
	}
	return a, nil
}

// authority is the source of the resources that come from one chain of servers (A47). It
// subscribes at the first server of the chain, and at the next one only while the first
// cannot be reached and a resource that is watched has not been received yet, and so on (A71).
type authority struct {
	core    *core
	cache   *cache
	pool    *pool
	chain   []*bootstrap.Server
	servers []*server // the servers in use: a prefix of chain
	entries map[*entry]struct{}
}

// subscribeLocked implements source: it subscribes to e at all servers in use. A version in the
// cache that may have changed since e was unsubscribed from is dropped (T-WATCH-3).
func (a *authority) subscribeLocked(e *entry) {
	a.entries[e] = struct{}{}
	if len(a.servers) == 0 {
		a.useNextServerLocked()
	}
	if e.value != nil && !slices.ContainsFunc(a.servers, func(s *server) bool { return s.types[e.key.typ].sendsLocked(e) }) {
		a.cache.resetLocked(e)
	}
	for _, s := range a.servers {
		s.types[e.key.typ].subscribeLocked(e, a)
	}
	switch {
	case !e.unansweredLocked():
	case a.exhaustedLocked():
		a.cache.unreachableLocked(e, a.failureLocked(e))
	default:
		a.checkLocked()
	}
}

// unsubscribeLocked implements source.
func (a *authority) unsubscribeLocked(e *entry) {
	for _, s := range a.servers {
		s.types[e.key.typ].unsubscribeLocked(e)
	}
}

// forgetLocked implements source.
func (a *authority) forgetLocked(e *entry) { delete(a.entries, e) }

// waitingLocked implements source.
func (a *authority) waitingLocked(e *entry) error {
	s, state := a.servers[len(a.servers)-1], "is not connected yet"
	if s.up {
		state = "is connected but has not sent it"
		if t := &s.types[e.key.typ]; t.counts.Unread != "" {
			state = "is connected but has not sent a valid one; " + t.unreadLocked()
		}
	}
	if was := s.stats.status; was.Err != nil && was.ErrTime.After(e.since) { // possibly not the first time
		state += fmt.Sprintf(", and last failed %v ago: %v", time.Since(was.ErrTime).Round(time.Millisecond), was.Err)
	}
	return fmt.Errorf("xdslb: waiting for %v resource %q for %v: xDS server %q %s", e.key.typ, e.key.name, time.Since(e.since).Round(time.Millisecond), s.cfg.URI, state)
}

// resendLocked implements source.
func (a *authority) resendLocked(e *entry) {
	for _, s := range a.servers {
		s.restartLocked()
	}
	if a.exhaustedLocked() {
		e.bytesUnreachableLocked(a.failureLocked(e))
		return
	}
	a.checkLocked()
}

// useNextServerLocked starts to use the next server of the chain.
func (a *authority) useNextServerLocked() {
	if n := len(a.servers); n > 0 {
		a.servers[n-1].users[a] = false
	}
	s := a.pool.serverLocked(a.chain[len(a.servers)])
	a.servers = append(a.servers, s)
	s.users[a] = true
	for e := range a.entries {
		if e.watchedLocked() {
			s.types[e.key.typ].subscribeLocked(e, a)
		}
	}
}

// checkLocked implements serverUser: it falls back to the next server while the last one in use
// cannot be reached and a resource that is watched is not in the cache (A71). If no server of the
// chain can be reached, resources without an answer get an error.
func (a *authority) checkLocked() {
	for {
		last := a.servers[len(a.servers)-1]
		if last.err == nil || len(a.servers) == len(a.chain) || !a.anyUncachedLocked() {
			break
		}
		next := a.chain[len(a.servers)]
		a.core.logLocked(slog.LevelWarn, "xdslb: falling back to the next xDS server", logFields{server: last.cfg, typ: noType, err: last.err},
			slog.String("next", next.URI))
		recordLocked(newEvent(eventFallback, last.cfg, last.err), maps.Keys(a.entries))
		a.useNextServerLocked()
	}
	if !a.exhaustedLocked() {
		return
	}
	for e := range a.entries {
		switch {
		case e.unansweredLocked():
			a.cache.unreachableLocked(e, a.failureLocked(e))
		case e.wantsBytesLocked():
			e.bytesUnreachableLocked(a.failureLocked(e))
		}
	}
}

// hasNextLocked implements serverUser.
func (a *authority) hasNextLocked() bool { return len(a.servers) < len(a.chain) }

// exhaustedLocked reports whether no server of the chain can be reached. The last server
// can fail while an earlier server is connected again and has not responded yet.
func (a *authority) exhaustedLocked() bool {
	return len(a.servers) == len(a.chain) && !slices.ContainsFunc(a.servers, func(s *server) bool { return s.err == nil })
}

// failureLocked returns why e is not available, with the error of every server of the chain.
func (a *authority) failureLocked(e *entry) error {
	if len(a.servers) == 1 {
		return fmt.Errorf("xdslb: waiting for %v resource %q: xDS server %q: %w", e.key.typ, e.key.name, a.servers[0].cfg.URI, a.servers[0].err)
	}
	var b strings.Builder
	for _, s := range a.servers {
		fmt.Fprintf(&b, "; xDS server %q: %v", s.cfg.URI, s.err)
	}
	return fmt.Errorf("xdslb: waiting for %v resource %q%s", e.key.typ, e.key.name, b.String())
}

// respondedLocked implements serverUser: the servers after p are not needed any more (A71). The
// resources that they have sent stay until p sends its own, or does not in time.
func (a *authority) respondedLocked(p *peer) {
	i := slices.IndexFunc(a.servers, func(s *server) bool { return &s.peer == p })
	if i == len(a.servers)-1 {
		return
	}
	s := a.servers[i]
	recordLocked(newEvent(eventReturn, s.cfg, nil), maps.Keys(a.entries))
	for _, lower := range a.servers[i+1:] {
		a.core.logLocked(slog.LevelInfo, "xdslb: xDS server recovered, leaving its fallback", logFields{server: s.cfg, typ: noType},
			slog.String("left", lower.cfg.URI))
		delete(lower.users, a)
		for e := range a.entries {
			lower.types[e.key.typ].dirty = true
			lower.types[e.key.typ].dropLocked(e)
		}
		lower.notify()
		if len(lower.users) == 0 {
			a.pool.closeLocked(lower)
		}
	}
	a.servers = a.servers[:i+1]
	s.users[a] = true
	for i := range s.types {
		t := &s.types[i]
		t.startTimersLocked(slices.Collect(maps.Values(t.subs)))
	}
}

func (a *authority) anyUncachedLocked() bool {
	for e := range a.entries {
		if e.watchedLocked() && (e.uncachedLocked() || e.wantsBytesLocked()) {
			return true
		}
	}
	return false
}
