// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/xds/resource"
)

// delta is the incremental variant: requests say which names come and go, responses
// have the resources that changed, each with a version, and the names of those that
// are gone.
//
// A server takes every request into account, whatever its nonce, so subscriptions
// are a matter of order alone. They travel in requests of their own, and ACKs and
// NACKs in others: a nonce is for these only, and Istio ignores requests with an old
// one. Every response is answered, in order.
type delta struct{}

// deltaType is what the incremental variant has to know about a type on a stream.
type deltaType struct {
	// asked are the names that the server knows to be wanted, as of the last request.
	asked map[string]struct{}
	// changed are the names for which that may not be so any more.
	changed map[string]struct{}
	// echoes counts, by name, the requests that left a resource and that the server may
	// still answer by saying that it is gone. What is older than a generation is in
	// stale, and what is older than two is forgotten, since no message is under way
	// for so long.
	echoes, stale map[string]int
	turned        time.Time // when the generation began

	// aliases are the names by which resources were asked for that have another name
	// of their own, by that one. Removals may go by either.
	aliases map[string]map[string]struct{}

	// answers are the ACKs and NACKs that are due, oldest first.
	answers []answer
}

// maxAnswers bounds the answers that wait for a server that does not read: then
// the oldest are left out.
const maxAnswers = 256

// String returns the name of the RPC.
func (delta) String() string { return "DeltaAggregatedResources" }

func (delta) open(ctx context.Context, cc *grpc.ClientConn) (adsStream, error) {
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).DeltaAggregatedResources(ctx)
	return typedStream[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]{st}, err
}

func (delta) openedLocked(_ *server, t *subscriptions) {
	t.delta = deltaType{asked: map[string]struct{}{}, changed: map[string]struct{}{}}
	for name := range t.subs {
		t.delta.changed[name] = struct{}{}
	}
}

func (delta) requestLocked(s *server, typ resource.Type, node *corev3.Node) (request, []*subscription) {
	t := &s.types[typ]
	d := &t.delta
	if len(d.answers) > 0 && (d.answers[0].rejection == (rejection{}) || !t.nackTimer.RunningLocked()) {
		return s.answerLocked(typ, node), nil
	}
	t.dirty = false
	var versions map[string]string // a first request says what the client has
	if !t.sent {
		versions = s.claimLocked(t)
		s.claimed = s.claimed || len(versions) > 0
	}
	come, gone, awaited := s.changesLocked(t)
	// A first request that subscribes to nothing would ask for everything (T-XDS-2).
	if len(come) == 0 && len(gone) == 0 {
		return nil, nil
	}
	req := &discoveryv3.DeltaDiscoveryRequest{
		Node:                     node,
		TypeUrl:                  typ.URL(),
		ResourceNamesSubscribe:   come,
		ResourceNamesUnsubscribe: gone,
		InitialResourceVersions:  versions,
	}
	t.sent = true
	return req, awaited
}

// answerLocked returns the ACK or NACK that is due. After a NACK the next one, and what
// is behind it, waits for Options.BackoffBase, as in the other variant: see nackLocked.
func (s *server) answerLocked(typ resource.Type, node *corev3.Node) request {
	t := &s.types[typ]
	a := t.delta.answers[0]
	t.delta.answers = slices.Delete(t.delta.answers, 0, 1)
	req := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typ.URL(), ResponseNonce: a.nonce}
	if a.rejection == (rejection{}) {
		t.lastNack = rejection{}
		return req
	}
	req.ErrorDetail = a.rejection.status()
	s.logRejectionLocked(typ, a.rejection)
	s.startLocked(&t.nackTimer, s.c.opts.BackoffBase, func() {
		t.dirty = true
		s.notify()
	})
	return req
}

// changesLocked returns the names to subscribe to and to unsubscribe from, and the
// subscriptions that wait for an answer. What is lacking is asked for again, since a
// server answers each subscription.
func (s *server) changesLocked(t *subscriptions) (come, gone []string, awaited []*subscription) {
	d := &t.delta
	for name := range d.changed {
		sub := t.subs[name]
		_, asked := d.asked[name]
		if sub != nil && !sub.unsubscribing && len(sub.entry.watchers) == 0 {
			if asked {
				s.beginUnsubscribeLocked(sub)
			} else {
				s.dropLocked(sub.entry)
				sub = nil
			}
		}
		switch wanted := sub != nil && !sub.unsubscribing; {
		case wanted && (!asked || s.awaitsLocked(sub)):
			sub.restarts = sub.restarts || !asked && !sub.claimed
			sub.crosses = sub.restarts && t.sent
			sub.claimed = false
			come = append(come, name)
			d.asked[name] = struct{}{}
			if s.awaitsLocked(sub) {
				awaited = append(awaited, sub)
			}
		case !wanted && asked:
			gone = append(gone, name)
			delete(d.asked, name)
			d.left(name, s.c.resourceTimeout(s.cfg))
		}
	}
	clear(d.changed)
	slices.Sort(come)
	slices.Sort(gone)
	return come, gone, awaited
}

// left notes that a request leaves a resource; generation is how long the answer may
// be under way.
func (d *deltaType) left(name string, generation time.Duration) {
	if now := time.Now(); d.echoes == nil || now.Sub(d.turned) > generation {
		d.echoes, d.stale, d.turned = map[string]int{}, d.echoes, now
	}
	d.echoes[name]++
}

// echoed takes one from the echoes that are expected of a name, and reports whether
// there was one.
func (d *deltaType) echoed(name string) bool {
	for _, echoes := range []map[string]int{d.stale, d.echoes} {
		if n := echoes[name]; n > 1 {
			echoes[name]--
			return true
		} else if n == 1 {
			delete(echoes, name)
			return true
		}
	}
	return false
}

// claimLocked returns the versions that the cache has from this server, so that it
// need not send them again; none if another server is or was in use (claimsLocked).
// What is not in order is not claimed: the server could not put it right by sending
// nothing. What is not claimed has to come.
//
// The names go up twice, for the first request subscribes to all of them as well. A
// version says what the client has and not what it wants, and no state outlives a stream:
// "the reconnecting client must provide the server with all resource names it is
// interested in" (xDS protocol, "Incremental xDS").
func (s *server) claimLocked(t *subscriptions) map[string]string {
	claim := s.claimsLocked(t)
	versions := map[string]string{}
	for name, sub := range t.subs {
		e := sub.entry
		if e.key.typ == resource.LbEndpointType {
			s.claimMembersLocked(sub, claim, versions)
			continue
		}
		sub.received = sub.received && claim && e.state == Acked && e.version != ""
		if sub.received && len(e.watchers) > 0 {
			versions[name] = e.version
		}
	}
	return versions
}

func (delta) split(typ resource.Type, m message) pieces {
	msg := m.(*discoveryv3.DeltaDiscoveryResponse)
	p := pieces{version: msg.GetSystemVersionInfo(), items: make([]item, 0, len(msg.GetResources()))}
	seen := make(map[string]struct{}, len(msg.GetResources()))
	for i, res := range msg.GetResources() {
		name, err := deltaName(typ, res)
		var ttl time.Duration
		if err == nil {
			ttl, err = resource.TTL(res.GetTtl())
		}
		if err != nil {
			p.nacks = append(p.nacks, fmt.Errorf("resources[%d]: %w", i, err))
			continue
		}
		it := item{
			name: canonicalName(name), version: res.GetVersion(), bytes: res.GetResource().GetValue(),
			ttl: ttl, heartbeat: res.GetResource() == nil,
		}
		p.add(typ, seen, i, it)
		for _, alias := range res.GetAliases() {
			if alias = canonicalName(alias); alias != it.name {
				it := it
				it.name, it.alias = alias, it.name
				p.add(typ, seen, i, it)
			}
		}
	}
	return p
}

// deltaName returns the name of a resource of a response. The one in the wrapper
// counts; what is in it must be named likewise, or by an alias.
func deltaName(typ resource.Type, res *discoveryv3.Resource) (string, error) {
	name := res.GetName()
	if name == "" {
		name = res.GetResourceName().GetName()
	}
	if res.GetResource() == nil && res.GetTtl() != nil {
		return name, nil
	}
	if res.GetResource() == nil {
		return "", fmt.Errorf("%v resource %q has no content", typ, name)
	}
	if url := res.GetResource().GetTypeUrl(); url != typ.URL() {
		return "", foreign(typ, url)
	}
	if typ == resource.LbEndpointType { // it has no name of its own
		if name == "" {
			return "", fmt.Errorf("a %v resource has no name", typ)
		}
		return name, nil
	}
	own, err := resource.Name(typ, res.GetResource().GetValue())
	if err != nil {
		return "", fmt.Errorf("resource %q: %w", name, err)
	}
	if name == "" {
		return own, nil
	}
	if name != own && canonicalName(name) != canonicalName(own) && !slices.Contains(res.GetAliases(), own) {
		return "", fmt.Errorf("%v resource %q has the name %q in its content", typ, name, own)
	}
	return name, nil
}

// deleteLocked deals with the resources that the server says are gone, or not there
// at all.
func (delta) deleteLocked(s *server, typ resource.Type, m message, _ bool) {
	msg := m.(*discoveryv3.DeltaDiscoveryResponse)
	for _, name := range msg.GetRemovedResources() {
		s.removedNameLocked(typ, name)
	}
	for _, name := range msg.GetRemovedResourceNames() {
		s.removedNameLocked(typ, name.GetName())
	}
}

// removedNameLocked deals with a name that is gone, and with all aliases of it.
func (s *server) removedNameLocked(typ resource.Type, name string) {
	t := &s.types[typ]
	name = canonicalName(name)
	s.goneLocked(t, name)
	aliases := t.delta.aliases[name]
	delete(t.delta.aliases, name)
	for alias := range aliases {
		s.goneLocked(t, alias)
	}
}

// knownAsLocked notes under which name a resource came that has another one of its own.
func (d *deltaType) knownAsLocked(it *item) {
	if it.alias == "" {
		return
	}
	if d.aliases == nil {
		d.aliases = map[string]map[string]struct{}{}
	}
	if d.aliases[it.alias] == nil {
		d.aliases[it.alias] = map[string]struct{}{}
	}
	d.aliases[it.alias][it.name] = struct{}{}
}

// goneLocked notes that the server says that a resource is gone. Some servers say so
// of what they were told to leave, too (see deltaType.echoes): then it may be no news.
// What is wanted is asked for again then, which the server has to answer.
func (s *server) goneLocked(t *subscriptions, name string) {
	sub, echo := t.subs[name], t.delta.echoed(name)
	switch {
	case sub == nil || sub.round == t.round:
		// Not asked for, or sent along, or said before.
	case sub.unsubscribing:
		s.dropLocked(sub.entry)
	case echo:
		s.askAgainLocked(t, sub)
	case sub.entry.emptyLocked() && (sub.received || sub.entry.value == nil): // be it late
		s.emptyLocked(sub)
	case sub.received:
		sub.answeredLocked()
		s.removedLocked(sub)
	case s.awaitsLocked(sub):
		sub.answeredLocked()
		s.absentLocked(sub, fmt.Errorf("xds: %v resource %q not found: xDS server %q says that it does not exist", sub.entry.key.typ, name, s.cfg.URI))
	}
}

// askAgainLocked has the server send a resource, which it has to do if it is
// subscribed to once more. In the other variant there is no such way.
func (s *server) askAgainLocked(t *subscriptions, sub *subscription) {
	sub.received = false
	if t.delta.asked != nil {
		delete(t.delta.asked, sub.entry.key.name)
		s.changedLocked(t, sub.entry.key.name)
	}
}

func (delta) acknowledgeLocked(s *server, typ resource.Type, _ string, a answer) {
	t := &s.types[typ]
	d := &t.delta
	if len(d.answers) == maxAnswers {
		d.answers = slices.Delete(d.answers, 0, 1)
	}
	d.answers = append(d.answers, a)
	t.dirty = true
	s.notify()
}

// sendsLocked is always true: what was left is asked for anew if it is wanted again,
// and the server answers. A server that believes that the client has it still, since
// a response crossed the request, need not. Then the cache has to do.
func (delta) sendsLocked(*subscription) bool { return true }
