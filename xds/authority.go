// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// authorityKey names an authority: that of an xdstp name, which may be empty,
// or none, for names of the old style.
type authorityKey struct {
	xdstp bool
	name  string
}

// authority is the set of resources that come from one chain of servers (A47).
// The first server of the chain is asked; the next one only while the first
// cannot be reached and somebody waits for a resource that nobody has sent yet,
// and so on (A71).
type authority struct {
	c       *Client
	chain   []*bootstrap.Server
	servers []*server // those in use: a prefix of chain
	entries map[*entry]struct{}
}

// authorityLocked returns the authority of the resource with the given canonical
// name.
func (c *Client) authorityLocked(name string) (*authority, error) {
	key := authorityOf(name)
	a := c.authorities[key]
	if a == nil {
		chain, err := c.cfg.ServersFor(name)
		if err != nil {
			return nil, err
		}
		a = &authority{c: c, chain: chain, entries: map[*entry]struct{}{}}
		c.authorities[key] = a
	}
	return a, nil
}

// subscribeLocked asks all servers in use for e. What is in the cache, and may have
// changed since e was unsubscribed from, is fetched anew (T-WATCH-3).
func (a *authority) subscribeLocked(e *entry) {
	a.entries[e] = struct{}{}
	if len(a.servers) == 0 {
		a.useNextServerLocked()
	}
	if e.latestLocked() != nil && !slices.ContainsFunc(a.servers, func(s *server) bool { return s.sendsLocked(e) }) {
		e.resetLocked()
	}
	for _, s := range a.servers {
		s.subscribeLocked(e)
	}
	switch {
	case !e.unansweredLocked():
	case a.exhaustedLocked():
		a.c.unreachableLocked(e, a.failureLocked(e))
	default:
		a.checkLocked()
	}
}

// useNextServerLocked puts the next server of the chain to use.
func (a *authority) useNextServerLocked() {
	s := a.c.serverLocked(a.chain[len(a.servers)])
	a.servers = append(a.servers, s)
	s.users[a] = struct{}{}
	for e := range a.entries {
		if len(e.watchers) > 0 {
			s.subscribeLocked(e)
		}
	}
}

// checkLocked falls back to the next server while the last one in use cannot be
// reached and somebody waits for a resource that is not in the cache (A71).
// When no server of the chain can be reached, those of which nothing has been heard get an
// error.
func (a *authority) checkLocked() {
	for {
		last := a.lastLocked()
		if last.err == nil || len(a.servers) == len(a.chain) || !a.anyUncachedLocked() {
			break
		}
		next := a.chain[len(a.servers)]
		a.c.logLocked(slog.LevelWarn, "xdslb: falling back from an xDS server to the next", fact{server: last.cfg, typ: noType, err: last.err},
			slog.String("next", next.URI))
		a.journalLocked(eventlog.Fallback, last, last.err)
		a.useNextServerLocked()
	}
	if !a.exhaustedLocked() {
		return
	}
	for e := range a.entries {
		if e.unansweredLocked() {
			a.c.unreachableLocked(e, a.failureLocked(e))
		}
	}
}

// exhaustedLocked reports whether no server of the chain can be reached. The last one
// can fail while an earlier one is back, and has not said anything yet.
func (a *authority) exhaustedLocked() bool {
	return len(a.servers) == len(a.chain) && !slices.ContainsFunc(a.servers, func(s *server) bool { return s.err == nil })
}

// failureLocked says why e cannot be had, naming every server of the chain.
func (a *authority) failureLocked(e *entry) error {
	if len(a.servers) == 1 {
		return fmt.Errorf("xds: waiting for %v resource %q: xDS server %q: %w", e.key.typ, e.key.name, a.servers[0].cfg.URI, a.servers[0].err)
	}
	var b strings.Builder
	for _, s := range a.servers {
		fmt.Fprintf(&b, "; xDS server %q: %v", s.cfg.URI, s.err)
	}
	return fmt.Errorf("xds: waiting for %v resource %q%s", e.key.typ, e.key.name, b.String())
}

// respondedLocked notes that s has sent something: the servers after it are not
// needed any more (A71). What they have sent stays until s sends its own, or does
// not in time.
func (a *authority) respondedLocked(s *server) {
	i := slices.Index(a.servers, s)
	if i == len(a.servers)-1 {
		return
	}
	a.journalLocked(eventlog.Return, s, nil)
	for _, lower := range a.servers[i+1:] {
		a.c.logLocked(slog.LevelInfo, "xdslb: an xDS server is back, leaving the one after it", fact{server: s.cfg, typ: noType},
			slog.String("left", lower.cfg.URI))
		delete(lower.users, a)
		for e := range a.entries {
			lower.types[e.key.typ].dirty = true
			lower.dropLocked(e)
		}
		lower.notify()
		if len(lower.users) == 0 {
			lower.closeLocked()
		}
	}
	a.servers = a.servers[:i+1]
	for t := range s.types {
		s.startTimersLocked(slices.Collect(maps.Values(s.types[t].subs)))
	}
}

// lastLocked returns the last server in use.
func (a *authority) lastLocked() *server { return a.servers[len(a.servers)-1] }

func (a *authority) anyUncachedLocked() bool {
	for e := range a.entries {
		if len(e.watchers) > 0 && e.uncachedLocked() {
			return true
		}
	}
	return false
}

// canonicalName is the form of a resource name by which the cache knows it:
// context parameters of xdstp names have an order there, and directives (the
// fragment) no place (A47, xRFC TP1). Other names are left as they are.
func canonicalName(name string) string {
	if !strings.HasPrefix(name, "xdstp:") {
		return name
	}
	name, _, _ = strings.Cut(name, "#")
	path, query, ok := strings.Cut(name, "?")
	if !ok {
		return name
	}
	params := strings.Split(query, "&")
	slices.Sort(params)
	if query = strings.Join(params, "&"); query == "" {
		return path
	}
	return path + "?" + query
}

// authorityOf returns the authority of a canonical name, between the slashes of
// xdstp://authority/type/id. It follows bootstrap.Config.ServersFor, which has
// the last word on which servers that means.
func authorityOf(name string) authorityKey {
	rest, ok := strings.CutPrefix(name, "xdstp:")
	if !ok {
		return authorityKey{}
	}
	key := authorityKey{xdstp: true}
	path, _, _ := strings.Cut(rest, "?")
	if r, ok := strings.CutPrefix(path, "//"); ok {
		key.name, path, _ = strings.Cut(r, "/")
	} else {
		path = strings.TrimPrefix(path, "/")
	}
	if typ, id, _ := strings.Cut(path, "/"); typ == "" || id == "" {
		return authorityKey{}
	}
	return key
}

func compareKeys(a, b entryKey) int {
	return cmp.Or(cmp.Compare(a.typ, b.typ), cmp.Compare(a.name, b.name))
}
