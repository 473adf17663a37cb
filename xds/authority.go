// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/xdslb/xdslb/xds/bootstrap"
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

// authority returns the authority of the resource with the given canonical
// name; mu is held.
func (c *Client) authority(name string) (*authority, error) {
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

// subscribe asks all servers in use for e; mu is held.
func (a *authority) subscribe(e *entry) {
	a.entries[e] = struct{}{}
	if len(a.servers) == 0 {
		a.extend()
	}
	for _, s := range a.servers {
		s.subscribe(e)
	}
	switch {
	case !e.uncached():
	case a.exhausted():
		a.c.unreachable(e, a.failure(e))
	default:
		a.check()
	}
}

// extend puts the next server of the chain to use.
func (a *authority) extend() {
	s := a.c.server(a.chain[len(a.servers)])
	a.servers = append(a.servers, s)
	s.users[a] = struct{}{}
	for e := range a.entries {
		if len(e.views) > 0 {
			s.subscribe(e)
		}
	}
}

// check falls back to the next server while the last one in use cannot be
// reached and somebody waits for a resource of which nothing has been heard.
// When no server of the chain can be reached, those who wait are told (A71).
func (a *authority) check() {
	for {
		last := a.servers[len(a.servers)-1]
		if last.err == nil || len(a.servers) == len(a.chain) || !a.anyUncached() {
			break
		}
		a.c.warnf("Falling back from xDS server %q to %q: %v", last.cfg.URI, a.chain[len(a.servers)].URI, last.err)
		a.extend()
	}
	if !a.exhausted() {
		return
	}
	for e := range a.entries {
		if e.uncached() {
			a.c.unreachable(e, a.failure(e))
		}
	}
}

// exhausted reports whether no server of the chain can be reached. The last one
// can fail while an earlier one is back, and has not said anything yet.
func (a *authority) exhausted() bool {
	return len(a.servers) == len(a.chain) && !slices.ContainsFunc(a.servers, func(s *server) bool { return s.err == nil })
}

// failure says why e cannot be had, naming every server of the chain.
func (a *authority) failure(e *entry) error {
	if len(a.servers) == 1 {
		return fmt.Errorf("xds: waiting for %v resource %q: xDS server %q: %w", e.key.typ, e.key.name, a.servers[0].cfg.URI, a.servers[0].err)
	}
	var b strings.Builder
	for _, s := range a.servers {
		fmt.Fprintf(&b, "; xDS server %q: %v", s.cfg.URI, s.err)
	}
	return fmt.Errorf("xds: waiting for %v resource %q%s", e.key.typ, e.key.name, b.String())
}

// responded notes that s has sent something: the servers after it are not
// needed any more (A71). What they have sent stays until s sends its own.
func (a *authority) responded(s *server) {
	i := slices.Index(a.servers, s)
	for _, lower := range a.servers[i+1:] {
		a.c.infof("xDS server %q is back, leaving %q", s.cfg.URI, lower.cfg.URI)
		delete(lower.users, a)
		for e := range a.entries {
			lower.types[e.key.typ].dirty = true
			lower.drop(e)
		}
		lower.poke()
		if len(lower.users) == 0 {
			lower.close()
		}
	}
	a.servers = a.servers[:i+1]
}

func (a *authority) anyUncached() bool {
	for e := range a.entries {
		if len(e.views) > 0 && e.uncached() {
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
