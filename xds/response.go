// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/zeebo/xxh3"
	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/xds/resource"
)

// response is one DiscoveryResponse on its way into the cache: split into
// resources, compared with the cache, decoded where new, and applied.
// Comparing and applying take Client.mu, splitting and decoding, which are the
// work, do not.
type response struct {
	server *server
	typ    resource.Type
	msg    *discoveryv3.DiscoveryResponse

	items    []item
	nameless bool    // there is a resource whose name cannot be read
	nacks    []error // what is wrong; any makes the answer a NACK (A46)
}

// item is one resource of a response.
type item struct {
	name  string // canonical
	bytes []byte
	sum   xxh3.Uint128

	skip  bool // nobody asked for it
	known bool // value and err are those of the cache
	prev  any  // the version in the cache, if any
	value any
	err   error
}

// handle does everything, and returns what tells when each view that was
// affected has come to terms with it.
func (r *response) handle() (touched []chan struct{}) {
	r.split()
	opts := r.server.c.decodeOptions(r.server.cfg)
	for {
		r.compare()
		for i := range r.items {
			if it := &r.items[i]; !it.skip && !it.known {
				it.value, it.err = decode(r.typ, it.bytes, it.prev, opts)
			}
		}
		if touched, ok := r.apply(); ok {
			return touched
		}
	}
}

// split names the resources. It costs one pass over their bytes and decodes
// nothing.
func (r *response) split() {
	r.items = make([]item, 0, len(r.msg.GetResources()))
	seen := make(map[string]struct{}, len(r.msg.GetResources()))
	for i, a := range r.msg.GetResources() {
		url, value, err := resource.Unwrap(a)
		if err == nil && url != r.typ.URL() {
			err = fmt.Errorf("a resource of type %q in a response of type %q", url, r.typ.URL())
		}
		var name string
		if err == nil {
			name, err = resource.Name(r.typ, value)
		}
		if err != nil {
			r.nameless = true
			r.nacks = append(r.nacks, fmt.Errorf("resources[%d]: %w", i, err))
			continue
		}
		name = canonicalName(name)
		if _, twice := seen[name]; twice {
			r.nacks = append(r.nacks, fmt.Errorf("resources[%d]: there is a second %v resource %q in the response", i, r.typ, name))
			continue
		}
		seen[name] = struct{}{}
		r.items = append(r.items, item{name: name, bytes: value, sum: xxh3.Hash128(value)})
	}
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
		it.skip, it.prev = false, e.value
		switch {
		case e.value != nil && e.sum == it.sum && e.from.TrustedXDSServer == r.server.cfg.TrustedXDSServer:
			it.known, it.value = true, e.value
		case e.state == Nacked && e.rejected == it.sum && e.rejector == r.server.cfg:
			it.known, it.err = true, e.err
		}
	}
}

// decode never panics, whatever the server sent (T-XDS-19).
func decode(t resource.Type, bytes []byte, prev any, opts resource.Options) (value any, err error) {
	defer func() {
		if p := recover(); p != nil {
			value, err = nil, fmt.Errorf("xds: decoding a %v resource panicked: %v", t, p)
		}
	}()
	if t == resource.EndpointsType {
		last, _ := prev.(*resource.Endpoints)
		endpoints, err := resource.DecodeEndpoints(bytes, last)
		if err != nil {
			return nil, err
		}
		return endpoints, nil
	}
	return resource.Decode(t, bytes, opts)
}

// apply puts the response into effect: on the cache, and on what the next
// request of the type will say. A valid resource counts, whatever is wrong with
// others (A46). It is not ok to apply a response with a resource that has been
// asked for since it was compared.
func (r *response) apply() (touched []chan struct{}, ok bool) {
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
	c.touched = map[*view]chan struct{}{}
	defer func() { c.touched = nil }()
	t.heard = true
	t.round++
	for i := range r.items {
		it := &r.items[i]
		sub := t.subs[it.name]
		if sub == nil || it.skip {
			continue
		}
		sub.answered()
		sub.received, sub.round = true, t.round
		if it.err == nil {
			c.accept(sub.entry, it.value, it.sum, r.msg.GetVersionInfo(), s.cfg)
			continue
		}
		r.nacks = append(r.nacks, it.err)
		c.reject(sub.entry, it.err, it.sum, s.cfg)
	}
	r.reported(t)
	if complete(r.typ) && !r.nameless {
		r.delete(t)
	}
	r.acknowledge(t)
	for _, settled := range c.touched {
		touched = append(touched, settled)
	}
	return touched, true
}

// reported takes note of the errors that the server sent in the place of
// resources (xRFC TP3, A88).
func (r *response) reported(t *subscriptions) {
	s := r.server
	for _, re := range r.msg.GetResourceErrors() {
		sub := t.subs[canonicalName(re.GetResourceName().GetName())]
		if sub == nil {
			continue
		}
		sub.answered()
		sub.round = t.round
		code := codes.Code(re.GetErrorDetail().GetCode())
		err := fmt.Errorf("xds: %v resource %q: xDS server %q reports %v: %s", r.typ, sub.entry.key.name, s.cfg.URI, code, re.GetErrorDetail().GetMessage())
		data := code == codes.NotFound || code == codes.PermissionDenied
		s.c.fail(sub.entry, ReceivedError, err, !data, data && s.cfg.FailOnDataErrors)
	}
}

// complete reports whether a response of type t has all resources that were asked
// for, so that it tells which ones do not exist (T-XDS-6).
func complete(t resource.Type) bool { return t == resource.ListenerType || t == resource.ClusterType }

// delete deals with resources that a response of a type whose responses are
// complete does not have any more.
func (r *response) delete(t *subscriptions) {
	s := r.server
	for _, sub := range t.subs {
		switch {
		case !sub.received || sub.round == t.round || sub.doubted:
		case sub.leaving:
			// The server has heard of it, or has deleted the resource. Either
			// way it would send it to who asks anew.
			s.drop(sub.entry)
		default:
			s.removed(sub)
		}
	}
}

// removed notes that the server has deleted a resource (A53, A88).
func (s *server) removed(sub *subscription) {
	e := sub.entry
	sub.received = false
	// grpc-go's wording, which users match on (D5).
	err := fmt.Errorf("xds: resource %q of type %q has been removed by xDS server %q", e.key.name, e.key.typ.String()+"Resource", s.cfg.URI)
	drop := s.cfg.FailOnDataErrors || s.c.opts.DropDeleted && !s.cfg.IgnoreResourceDeletion
	if e.value != nil && !drop {
		s.c.warnf("%v; keeping the last version", err)
	}
	s.c.fail(e, DoesNotExist, err, false, drop)
}

// acknowledge makes the next request an ACK or a NACK (T-XDS-1).
func (r *response) acknowledge(t *subscriptions) {
	s, version := r.server, r.msg.GetVersionInfo()
	t.nonce, t.nack = r.msg.GetNonce(), ""
	if len(r.nacks) > 0 {
		t.nack = detail(r.nacks)
		again := rejection{version, t.nack}
		if again == t.rejected {
			s.answerLater(t)
			return
		}
		t.rejected = again
		s.c.warnf("Rejecting version %q of %v resources from xDS server %q: %s", version, r.typ, s.cfg.URI, t.nack)
	} else {
		t.version, t.rejected = version, rejection{}
	}
	t.dirty = true
	s.poke()
}

// detail joins what is wrong with a response, up to a size that a server can
// be expected to log.
func detail(errs []error) string {
	const limit = 8 << 10
	var b strings.Builder
	for i, err := range errs {
		text := err.Error()
		if i > 0 && b.Len()+len(text) > limit {
			fmt.Fprintf(&b, "; and %d more", len(errs)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(text[:min(len(text), limit)])
	}
	return b.String()
}
