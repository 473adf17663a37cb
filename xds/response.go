// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/zeebo/xxh3"
	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/resource"
)

// response is one response on its way into the cache: split into
// resources, compared with the cache, decoded where new, and applied.
// Comparing and applying take Client.mu, splitting and decoding, which are the
// work, do not.
type response struct {
	ctx    context.Context // ends when the server is not used any more; nil does not
	server *server
	typ    resource.Type
	msg    message
	at     arrival

	pieces
	wanted  int             // resources that are valid, and wanted still
	invalid int             // resources that are not valid
	refused string          // name of the first of them that has one
	refetch []*subscription // whose heartbeats were rejected
}

// pieces is a response split into resources.
type pieces struct {
	version string // of the whole
	items   []item
	partial bool   // not all resources are named, though the type's responses are complete
	faults  faults // what is wrong; any makes the answer a NACK (A46)
	seen    map[string]struct{}

	// latest are the places of the latest response of the type, and places those of this one; nil
	// if they are not compared by place. Resources that have not changed are in places with their
	// subscriptions. next is the first of latest that may come.
	latest, places []place
	next           int
}

// item is one resource of a response.
type item struct {
	name    string   // canonical
	at      int      // its place
	alias   string   // canonical own name of the resource, if name is another one that it has
	aliases []string // other names of the resource
	version string
	bytes   []byte
	sum     xxh3.Uint128
	ttl     time.Duration // 0 is for ever
	// heartbeat says that there are no bytes: the version in the cache lives on.
	heartbeat bool

	skip  bool // nobody asked for it
	known bool // value and err are those of the cache
	prev  any  // the version in the cache, if any
	value any
	raw   []byte // a copy of bytes, if the client keeps them; that of the cache if known
	err   error
}

// handle does everything, and returns a channel for each target that was affected,
// which is closed once the target's watchers have the result.
func (r *response) handle() (affected []chan struct{}) {
	r.split()
	r.addAliases()
	if r.typ == resource.LbEndpointType {
		return r.handleMembers()
	}
	opts := r.server.c.decodeOptions(r.server.cfg)
	opts.Stopped = r.ended
	for {
		r.compare()
		for i := range r.items {
			if r.ended() {
				return nil
			}
			if it := &r.items[i]; !it.skip && !it.known {
				it.value, it.err = decode(r.typ, it.bytes, it.prev, opts)
				it.err = r.server.c.checkCollections(it)
				if it.value != nil && r.server.c.bytes {
					it.raw = bytes.Clone(it.bytes) // which may be part of a buffer
				}
			}
		}
		if r.ended() {
			return nil // and the last resource may be decoded in part
		}
		if affected, ok := r.apply(); ok {
			return affected
		}
		r.split()
		r.addAliases()
	}
}

// ended reports whether the server is not used any more, so that the response does not matter.
// A response of a stream that has ended matters: some servers close a stream right after one.
func (r *response) ended() bool { return r.ctx != nil && r.ctx.Err() != nil }

// split splits the response into resources.
func (r *response) split() {
	r.server.c.mu.Lock()
	latest := r.server.types[r.typ].places
	r.server.c.mu.Unlock()
	r.pieces = r.msg.split(r.typ, latest)
}

// addAliases adds items for other names of resources, as far as these are subscribed to. A
// server has to answer those that are subscribed to later.
func (r *response) addAliases() {
	for i := range len(r.items) {
		own := r.items[i]
		for _, alias := range own.aliases {
			if alias = canonicalName(alias); alias == own.name || !r.wants(alias) {
				continue
			}
			if r.ended() {
				return
			}
			if r.see(r.typ, own.at, alias) {
				it := own
				it.name, it.alias, it.aliases = alias, own.name, nil
				r.items = append(r.items, it)
			}
		}
	}
}

// wants reports whether a name is subscribed to. It holds Client.mu for one name only, as
// there may be very many.
func (r *response) wants(name string) bool {
	r.server.c.mu.Lock()
	defer r.server.c.mu.Unlock()
	return r.server.types[r.typ].subs[name] != nil
}

// foreign says that a resource is of another type than its response.
func foreign(typ resource.Type, url string) error {
	return fmt.Errorf("a resource of type %q in a response of type %q", url, typ.URL())
}

// add adds resource number i of a response, unless its name has been seen.
func (p *pieces) add(typ resource.Type, i int, it item) {
	if p.see(typ, i, it.name) {
		it.sum = xxh3.Hash128(it.bytes)
		p.items = append(p.items, it)
	}
}

// see notes the name of resource number i, and reports whether it is the first of that
// name.
func (p *pieces) see(typ resource.Type, i int, name string) bool {
	if _, twice := p.seen[name]; twice {
		p.faults.add(fmt.Errorf("resources[%d]: there is a second %v resource %q in the response", i, typ, name))
		return false
	}
	p.seen[name] = struct{}{}
	return true
}

// compare finds the resources that nobody asked for, which are not looked at
// any further (A27-LDS-2), and those that are in the cache already, good or
// bad.
func (r *response) compare() {
	c := r.server.c
	c.mu.Lock()
	defer c.unlock()
	for i := range r.items {
		it := &r.items[i]
		sub := r.server.types[r.typ].subs[it.name]
		if sub == nil {
			it.skip = true
			continue
		}
		e := sub.entry
		latest := e.latestLocked()
		it.skip = false
		switch {
		case it.heartbeat:
			it.known = true
			it.renew(e, r.server.cfg)
		case r.inCacheLocked(e, it.sum):
			it.known, it.value, it.raw = true, latest, e.raw
		case e.rejected != nil && e.rejected.sum == it.sum && e.rejected.from == r.server.cfg:
			it.known, it.err, it.value, it.raw = true, e.err, e.rejected.value, e.rejected.raw
		default:
			it.prev = latest
		}
	}
}

// inCacheLocked reports whether the latest valid version of a resource has the bytes with a
// sum.
func (r *response) inCacheLocked(e *entry, sum xxh3.Uint128) bool {
	return e.latestLocked() != nil && e.sum == sum && e.from.TrustedXDSServer == r.server.cfg.TrustedXDSServer
}

// renew makes a heartbeat an item for the version in the cache, if that is what it is
// about.
func (it *item) renew(e *entry, from *bootstrap.Server) {
	it.value = e.latestLocked()
	if it.err = it.renews(e.key.typ, it.value != nil && e.from == from, e.version); it.err == nil {
		it.version, it.sum, it.raw = e.version, e.sum, e.raw
	}
}

// renews returns why a heartbeat does not renew the latest version, if there is one.
func (it *item) renews(t resource.Type, there bool, latest string) error {
	switch {
	case !there:
		return fmt.Errorf("%v resource %q: a heartbeat without content, and there is no version of it", t, it.name)
	case it.version != "" && it.version != latest:
		return fmt.Errorf("%v resource %q: a heartbeat without content for version %q, and the last one is %q", t, it.name, it.version, latest)
	}
	return nil
}

// decode decodes a resource. prev is the latest version, if any.
func decode(t resource.Type, data []byte, prev any, opts resource.Options) (any, error) {
	opts.Previous, _ = prev.(*resource.Endpoints)
	return guard(t, func() (any, error) { return resource.Decode(t, data, opts) })
}

// guard decodes a resource, and never panics, whatever the server sent (T-XDS-19).
func guard(t resource.Type, decode func() (any, error)) (value any, err error) {
	defer func() {
		if p := recover(); p != nil {
			value, err = nil, fmt.Errorf("xds: decoding a %v resource panicked: %v", t, p)
		}
	}()
	return decode()
}

// apply puts the response into effect: on the cache, and on what the next
// request of the type will say. A valid resource counts, whatever is wrong with
// others (A46). It is not ok to apply a response with a resource that has been
// asked for since it was compared.
func (r *response) apply() (affected []chan struct{}, ok bool) {
	s, c := r.server, r.server.c
	c.mu.Lock()
	defer c.unlock()
	t := &s.types[r.typ]
	if !t.sent {
		return nil, true // unasked, so there is nothing to acknowledge either
	}
	for i := range r.items {
		if r.items[i].skip && t.subs[r.items[i].name] != nil {
			return nil, false
		}
	}
	if !r.sameLocked() {
		return nil, false
	}
	return r.effectLocked(t, func() { r.applyResourcesLocked(t) }), true
}

// effectLocked puts a response into effect: what resources does with those that it has, and
// what else it says. It returns what is closed once the targets that this affects have the
// result.
func (r *response) effectLocked(t *subscriptions, resources func()) (affected []chan struct{}) {
	s, c := r.server, r.server.c
	c.affected = map[*dependencyManager]chan struct{}{}
	defer func() { c.affected = nil }()
	t.heard = true
	t.round++
	r.invalid = r.faults.n // of which no name is known, or not one alone
	resources()
	s.relation.status.Types[r.typ].Invalid += uint64(r.invalid)
	r.applyErrorsLocked(t)
	t.protocol.deleteLocked(s, r.typ, r.msg, r.partial)
	t.protocol.acknowledgeLocked(s, r.typ, r.version, answer{r.msg.GetNonce(), r.rejection(), r.refetch})
	return slices.Collect(maps.Values(c.affected))
}

// refuse notes that a resource is invalid, for the NACK.
func (r *response) refuse(it *item) {
	if r.refused == "" {
		r.refused = it.name
	}
	r.invalid++
	r.faults.add(it.err)
}

// applyResourcesLocked puts the resources of a response into the cache.
func (r *response) applyResourcesLocked(t *subscriptions) {
	s, c := r.server, r.server.c
	r.applySameLocked(t)
	for i := range r.items {
		it := &r.items[i]
		sub := t.subs[it.name]
		if sub == nil || it.skip {
			continue
		}
		sub.answeredLocked()
		sub.received, sub.round = true, t.round
		t.knownAsLocked(sub, it.alias)
		if it.err != nil && it.value != nil && !it.heartbeat {
			it.err = c.checkCollectionsLocked(it.value) // which may have changed meanwhile
		}
		if it.err == nil {
			c.acceptLocked(sub.entry, acceptedVersion{it.value, it.sum, it.version, s.cfg, r.at, it.raw})
			s.liveLocked(sub, it.ttl)
			s.relation.status.Types[r.typ].Valid++
			if !sub.unsubscribing {
				r.wanted++
			}
			if r.places != nil {
				r.places[it.at] = place{it.sum, sub}
			}
			continue
		}
		r.refuse(it)
		if it.heartbeat {
			sub.received = false // it says nothing about a version
			r.refetch = append(r.refetch, sub)
			continue
		}
		c.rejectLocked(sub.entry, it.err, rejectedVersion{it.sum, s.cfg, it.version, when(r.at), it.value, it.raw})
	}
	t.whole = r.wanted == len(t.subs)
	t.keepPlacesLocked(r.places)
}

// applyErrorsLocked takes note of the errors that the server sent in the place of
// resources (xRFC TP3, A88).
func (r *response) applyErrorsLocked(t *subscriptions) {
	s, seen := r.server, map[*subscription]struct{}{}
	for _, re := range r.msg.GetResourceErrors() {
		sub := t.subs[canonicalName(re.GetResourceName().GetName())]
		if _, again := seen[sub]; sub == nil || again {
			continue
		}
		seen[sub] = struct{}{}
		sub.answeredLocked()
		sub.round = t.round
		code := codes.Code(re.GetErrorDetail().GetCode())
		err := fmt.Errorf("xds: %v resource %q: xDS server %q reports %v: %s", r.typ, sub.entry.key.name, s.cfg.URI, code, eventlog.Cut(re.GetErrorDetail().GetMessage()))
		data := code == codes.NotFound || code == codes.PermissionDenied
		s.c.logLocked(slog.LevelWarn, "xdslb: an xDS server reports an error in the place of a resource", fact{server: s.cfg, typ: r.typ, name: sub.entry.key.name, err: err})
		s.c.failLocked(sub.entry, failure{state: ReceivedError, err: err, transient: !data, drop: data && s.cfg.FailOnDataErrors, kind: eventlog.ErrorReceived, from: s.cfg})
	}
}

// complete reports whether a state-of-the-world response of type t has all resources
// that were asked for, so that it tells which ones do not exist (T-XDS-6). Resources
// of other types are never taken away.
func complete(t resource.Type) bool { return t == resource.ListenerType || t == resource.ClusterType }

// removedLocked notes that the server has deleted a resource (A53, A88).
func (s *server) removedLocked(sub *subscription) {
	e := sub.entry
	sub.received = false
	// grpc-go's wording, which users match on (D5).
	err := fmt.Errorf("xds: resource %q of type %q has been removed by xDS server %q", e.key.name, e.key.typ.String()+"Resource", s.cfg.URI)
	message := "xdslb: an xDS server has deleted a resource"
	if e.value != nil && !s.deletionCounts(e.key.typ) {
		message += "; keeping the last version"
	}
	s.c.logLocked(slog.LevelWarn, message, fact{server: s.cfg, typ: e.key.typ, name: e.key.name, version: e.version, err: err})
	s.c.failLocked(e, failure{state: DoesNotExist, err: err, drop: s.deletionCounts(e.key.typ), kind: eventlog.Deleted, from: s.cfg})
}

// absentLocked notes that the server does not have a resource.
func (s *server) absentLocked(sub *subscription, err error) {
	e := sub.entry
	s.c.logLocked(slog.LevelWarn, "xdslb: an xDS server does not send a resource", fact{server: s.cfg, typ: e.key.typ, name: e.key.name, err: err})
	s.c.failLocked(e, failure{state: DoesNotExist, err: err, drop: s.deletionCounts(e.key.typ), kind: eventlog.Missing, from: s.cfg})
}

// deletionCounts reports whether a resource that the server deletes is not used any
// more (A53, A88).
func (s *server) deletionCounts(t resource.Type) bool {
	return complete(t) && (s.cfg.FailOnDataErrors || s.c.opts.DropDeleted && !s.cfg.IgnoreResourceDeletion)
}

// rejection says what is wrong with the response, the zero value if nothing is.
func (r *response) rejection() rejection {
	if r.faults.n == 0 {
		return rejection{}
	}
	return rejection{r.version, r.faults.String(), r.refused, r.invalid}
}

// logRejectionLocked logs a rejection, unless it was logged last.
func (s *server) logRejectionLocked(typ resource.Type, n rejection) {
	if t := &s.types[typ]; n != t.lastNack {
		t.lastNack = n
		s.c.logLocked(slog.LevelWarn, "xdslb: rejecting invalid resources of an xDS server (NACK)",
			fact{server: s.cfg, typ: typ, name: n.name, version: n.version, err: errors.New(n.fault)}, slog.Int("resources", n.resources))
	}
}
