// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/resource"
)

// response handles one response: it is split into resources (splitResponse), which are compared with the
// cache, decoded if they are new, and applied to the cache. Comparing and applying take
// core.mu. Splitting and decoding, which are most of the work, do not.
type response struct {
	ctx context.Context // ends when the server is not used any more; nil if it does not end
	t   *subscriptions
	msg message
	at  receiveTime

	splitResponse
	wanted  int             // number of valid resources that are still wanted
	invalid int             // number of invalid resources
	refused string          // name of the first of them that has one
	refetch []*subscription // whose heartbeats were rejected
	changed []*entry        // by this response
	pending []chan struct{} // of the targets that depend on changed: see pendingLocked
}

// handle handles the response, and returns a channel for each target that depends on a changed
// resource. The channel is closed when the watchers of the target have the result.
func (r *response) handle() (pending []chan struct{}) {
	for {
		r.split()
		if r.attempt() || r.ended() {
			return r.pending
		}
	}
}

// attempt compares, decodes and applies the resources. It returns false if the response has
// ended, or has to be split again.
func (r *response) attempt() (applied bool) {
	core := r.t.peer.core
	opts := core.decodeOptions(r.t.peer.cfg)
	opts.Stopped = r.ended
	keeps := r.compare()
	for i := range r.items {
		if r.ended() {
			return false
		}
		if it := &r.items[i]; !it.cached {
			it.value, it.err = decode(r.t.typ, it.bytes, it.prev, opts)
			if it.value != nil && keeps {
				it.raw = core.keep(r.t.typ, it.bytes)
			}
		}
	}
	if r.ended() {
		return false // the last resource may be incomplete
	}
	return r.apply()
}

// ended reports whether the server is not used any more, so that the response is irrelevant.
// A response of a stream that has ended is relevant: some servers close a stream right after one.
func (r *response) ended() bool { return r.ctx != nil && r.ctx.Err() != nil }

// split splits the response into resources, as far as it has not ended.
func (r *response) split() {
	core := r.t.peer.core
	core.mu.Lock()
	latest := r.t.slots
	core.mu.Unlock()
	r.splitResponse = splitResponse{typ: r.t.typ, latest: latest, stopped: r.ended, wants: r.wants}
	r.msg.readInto(&r.splitResponse)
	r.addAliases()
}

// addAliases adds items for other names of resources that are subscribed to. A server has to answer
// later subscriptions to them.
func (r *response) addAliases() {
	for i := range len(r.items) {
		own := r.items[i]
		for _, alias := range own.aliases {
			if alias = resource.CanonicalName(alias); alias == own.name || !r.wants(alias) {
				continue
			}
			if r.ended() {
				return
			}
			if r.recordName(own.at, alias) {
				it := own
				it.name, it.alias, it.aliases = alias, own.name, nil
				r.items = append(r.items, it)
			}
		}
	}
}

// wants reports whether a name is subscribed to. It locks core.mu for one name only, since there may be many, and
// reading them is most of the work.
func (r *response) wants(name string) bool {
	r.t.peer.core.mu.Lock()
	defer r.t.peer.core.mu.Unlock()
	return r.t.subs[name] != nil
}

// compare drops the resources that are not subscribed to, of which only the names are needed (A27-LDS-2), and marks
// resources whose latest version, valid or invalid, is in the cache. It reports whether bytes are kept.
func (r *response) compare() (keeps bool) {
	core := r.t.peer.core
	core.mu.Lock()
	defer core.mu.Unlock()
	r.items = slices.DeleteFunc(r.items, func(it resourceUpdate) bool {
		if r.t.subs[it.name] != nil {
			return false
		}
		r.unwanted = append(r.unwanted, it.name)
		return true
	})
	for i := range r.items {
		it := &r.items[i]
		e, from := r.t.subs[it.name].entry, r.t.peer.cfg
		switch {
		case it.heartbeat:
			it.cached = true
			it.renew(e, from)
		case r.inCacheLocked(e, it.sum):
			it.cached, it.value, it.raw = true, e.value, e.raw
		case e.rejected != nil && e.rejected.sum == it.sum && e.rejected.from == from:
			it.cached, it.err = true, e.err
		default:
			it.prev = e.value
		}
	}
	return core.keepsLocked()
}

// inCacheLocked reports whether the latest valid version of a resource has the bytes with a
// sum.
func (r *response) inCacheLocked(e *entry, sum xxh3.Uint128) bool {
	return e.value != nil && e.sum == sum && e.from.TrustedXDSServer == r.t.peer.cfg.TrustedXDSServer
}

// renew gives a heartbeat the version in the cache, if the heartbeat is about that.
func (it *resourceUpdate) renew(e *entry, from *bootstrap.Server) {
	it.value = e.value
	if it.err = it.renews(e, from); it.err == nil {
		it.version, it.sum, it.raw = e.version, e.sum, e.raw
	}
}

// renews returns why a heartbeat does not renew the latest version, nil if it does.
func (it *resourceUpdate) renews(e *entry, from *bootstrap.Server) error {
	switch {
	case e.value == nil || e.from != from:
		return fmt.Errorf("%v resource %q: heartbeat for a resource that the client does not have", e.key.typ, it.name)
	case it.version != "" && it.version != e.version:
		return fmt.Errorf("%v resource %q: heartbeat for version %q, but the client has version %q", e.key.typ, it.name, it.version, e.version)
	}
	return nil
}

// decode decodes a resource. prev is the latest version, if there is one.
func decode(t resource.Type, data []byte, prev any, opts resource.Options) (any, error) {
	opts.Previous, _ = prev.(*resource.Endpoints)
	return recoverPanic(t, func() (any, error) { return resource.Decode(t, data, opts) })
}

// apply applies the response to the cache, and to the next request of the type. A valid resource is
// applied even if others are invalid (A46). It returns false if a resource has been subscribed to,
// or dropped, since the comparison.
func (r *response) apply() bool {
	core := r.t.peer.core
	core.mu.Lock()
	defer core.unlock()
	if !r.t.sent {
		return true // not requested, so no acknowledgment either
	}
	if slices.ContainsFunc(r.unwanted, func(name string) bool { return r.t.subs[name] != nil }) {
		return false
	}
	if !r.sameLocked() {
		return false
	}
	r.effectLocked()
	return true
}

// effectLocked applies the resources, errors and deletions of the response, and acknowledges it.
func (r *response) effectLocked() {
	t := r.t
	t.responded = true
	t.round++
	r.invalid = r.faults.n // resources without a name, or with a repeated name
	t.counts.Unread = r.faults.String()
	r.applyResourcesLocked()
	t.counts.Invalid += uint64(r.invalid)
	r.applyErrorsLocked()
	r.changed = append(r.changed, t.protocol.deleteLocked(t, r.msg, r.partial)...)
	t.protocol.acknowledgeLocked(t, r.version, answer{r.msg.GetNonce(), r.rejection(), r.refetch})
	r.pending = r.pendingLocked()
}

// pendingLocked returns the channels that are closed when the targets that depend on the changed
// entries have delivered the result.
func (r *response) pendingLocked() (all []chan struct{}) {
	for t := range targetsOfLocked(slices.Values(r.changed)) {
		if delivered := t.pendingLocked(); delivered != nil {
			all = append(all, delivered)
		}
	}
	return all
}

// changedLocked records that the response has changed an entry, if it has.
func (r *response) changedLocked(e *entry, changed bool) {
	if changed {
		r.changed = append(r.changed, e)
	}
}

// refuse records that a resource is invalid, for the NACK.
func (r *response) refuse(it *resourceUpdate) {
	if r.refused == "" {
		r.refused = it.name
	}
	r.invalid++
	r.faults.add(it.err)
}

// applyResourcesLocked applies the resources to the cache.
func (r *response) applyResourcesLocked() {
	t, from, cache := r.t, r.t.peer.cfg, r.t.peer.cache
	r.applySameLocked()
	for i := range r.items {
		it := &r.items[i]
		sub := t.subs[it.name]
		if sub == nil { // since the comparison
			continue
		}
		sub.answeredLocked()
		sub.received, sub.returned, sub.round = true, false, t.round
		t.knownAsLocked(sub, it.alias)
		if it.raw == nil && it.value != nil && !it.heartbeat && t.peer.core.keepsLocked() {
			it.raw = t.peer.core.keep(t.typ, it.bytes) // since the comparison, or of a version received before
		}
		if it.err == nil {
			r.changedLocked(sub.entry, cache.acceptLocked(sub.entry, acceptedVersion{it.value, it.sum, it.version, from, r.at, it.raw}))
			t.liveLocked(sub, it.ttl)
			t.counts.Valid++
			if !sub.unsubscribing {
				r.wanted++
			}
			if r.slots != nil {
				r.slots[it.at] = slot{it.sum, sub}
			}
			continue
		}
		r.refuse(it)
		if it.heartbeat {
			sub.received = false // the server assumes a version that the client does not have
			r.refetch = append(r.refetch, sub)
			continue
		}
		r.changedLocked(sub.entry, cache.rejectLocked(sub.entry, it.err, rejectedVersion{it.sum, from, it.version, timeOrZero(r.at)}))
	}
	t.whole = r.wanted == len(t.subs)
	t.keepSlotsLocked(r.slots)
}

// applyErrorsLocked applies the errors that the server sent in place of resources (xRFC TP3, A88).
func (r *response) applyErrorsLocked() {
	t, p, seen := r.t, r.t.peer, map[*subscription]struct{}{}
	for _, re := range r.msg.GetResourceErrors() {
		sub := t.subs[resource.CanonicalName(re.GetResourceName().GetName())]
		if _, again := seen[sub]; sub == nil || again {
			continue
		}
		seen[sub] = struct{}{}
		sub.answeredLocked()
		sub.round = t.round
		code := codes.Code(re.GetErrorDetail().GetCode())
		err := fmt.Errorf("xdslb: %v resource %q: xDS server %q reports %v: %s", t.typ, sub.entry.key.name, p.cfg.URI, code, eventlog.Cut(re.GetErrorDetail().GetMessage()))
		data := code == codes.NotFound || code == codes.PermissionDenied
		p.core.beginLocked(sub.entry.unavailable(), "xdslb: xDS server reports an error for a resource", logFields{server: p.cfg, typ: t.typ, name: sub.entry.key.name, err: err})
		r.changedLocked(sub.entry, p.cache.failLocked(sub.entry, failure{state: ReceivedError, err: err, transient: !data, drop: data && p.cfg.FailOnDataErrors, kind: eventErrorReceived, from: p.cfg}))
	}
}

// rejection returns the faults of the response, or the zero value.
func (r *response) rejection() rejection {
	if r.faults.n == 0 {
		return rejection{}
	}
	return rejection{r.version, r.faults.String(), r.refused, r.invalid}
}
