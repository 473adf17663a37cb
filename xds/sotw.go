// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/zeebo/xxh3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/resource"
)

// sotw is the state-of-the-world variant: a request has all names of its type, and a
// response of type Listener or Cluster all resources.
type sotw struct{}

// String returns the name of the RPC.
func (sotw) String() string { return "StreamAggregatedResources" }

func (sotw) open(ctx context.Context, cc *grpc.ClientConn) (adsStream, error) {
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx, grpc.ForceCodecV2(newADSCodec()))
	return sotwStream{typedStream[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]{st}}, err
}

// sotwStream is a stream whose responses stay in the buffers that they came in.
type sotwStream struct {
	typedStream[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
}

func (st sotwStream) recv() (message, error) {
	w := &sotwResponse{}
	if err := st.RecvMsg(w); err != nil {
		return nil, err
	}
	return w, nil
}

func (sotw) openedLocked(_ *server, t *subscriptions) {
	t.delta = deltaType{}
	t.whole = false // another server may have sent something since
}

func (sotw) requestLocked(s *server, typ resource.Type, node *corev3.Node) (request, []*subscription) {
	t := &s.types[typ]
	t.dirty = false
	if typ == resource.LbEndpointType {
		s.refuseGlobsLocked()
		return nil, nil
	}
	if !t.sent {
		// A version claims that the cache has what this server sent. A server that goes
		// by it would not send that again, nor a resource that is new to it. Nor does
		// go-control-plane's linear cache send a response without resources then, which
		// would say that all of them are gone.
		if complete(typ) || !s.claimsLocked(t) || t.lapsed || s.lacksLocked(t) {
			t.version = ""
		}
		t.lapsed = false
	}
	names, awaited := s.namesLocked(t)
	if len(names) == 0 && !t.sent {
		return nil, nil
	}
	t.sent = true
	req := &discoveryv3.DiscoveryRequest{
		Node:          node,
		TypeUrl:       typ.URL(),
		ResourceNames: names,
		VersionInfo:   t.version,
		ResponseNonce: t.nonce,
	}
	if t.nack != (rejection{}) {
		req.ErrorDetail = t.nack.status()
		t.nack = rejection{}
	}
	return req, awaited
}

// namesLocked returns the names for the request that is about to be sent, without
// those that nobody wants any more, and the subscriptions that wait for an answer.
func (s *server) namesLocked(t *subscriptions) (names []string, awaited []*subscription) {
	if t.whole && t.names != nil {
		return t.names, nil
	}
	for _, sub := range t.subs {
		if !sub.unsubscribing && len(sub.entry.watchers) == 0 {
			s.beginUnsubscribeLocked(sub)
		}
		if sub.unsubscribing {
			sub.omitted = t.round
			continue
		}
		sub.asked = true
		if s.awaitsLocked(sub) {
			awaited = append(awaited, sub)
		}
	}
	if t.names == nil {
		t.names = make([]string, 0, len(t.subs))
		for name, sub := range t.subs {
			if !sub.unsubscribing {
				t.names = append(t.names, name)
			}
		}
		slices.Sort(t.names)
	}
	return t.names, awaited
}

// place is where a resource was in the latest response of its type. Servers keep the
// order as a rule, so that a resource is compared with what was in its place: its name
// need not be read, nor looked up. A place is 24 bytes.
type place struct {
	sum xxh3.Uint128
	sub *subscription
}

// maxGone is how many resources in a row may be gone from a response without the next
// ones losing their places.
const maxGone = 4

// split is the straightforward way: nothing is known of the latest response.
func (sotw) split(typ resource.Type, m message) pieces { return m.(*sotwResponse).pieces(typ, nil) }

// pieces splits a response into resources. Those that are as they were in the latest
// response, and in the same order, are among pieces.places and no items.
func (w *sotwResponse) pieces(typ resource.Type, latest []place) pieces {
	p := pieces{version: w.GetVersionInfo(), latest: latest, places: make([]place, 0, len(w.parts))}
	for i := range w.parts {
		part := &w.parts[i]
		if part.url != typ.URL() {
			p.addOther(typ, i, part)
			continue
		}
		sum := xxh3.Hash128(part.value)
		if p.addSame(typ, i, sum) {
			continue
		}
		name, err := resource.Name(typ, part.value)
		if err != nil {
			p.refuse(i, err)
			continue
		}
		p.addChanged(typ, i, item{name: canonicalName(name), version: p.version, sum: sum, bytes: part.value})
	}
	return p
}

// addOther adds resource number i, which is wrapped or of another type.
func (p *pieces) addOther(typ resource.Type, i int, part *part) {
	a := &anypb.Any{TypeUrl: part.url, Value: part.value}
	w, err := resource.WrappingOf(a)
	if err == nil && w.Heartbeat {
		// The other resources of its type go without saying then.
		p.partial = true
		p.addChanged(typ, i, item{name: canonicalName(w.Name), heartbeat: true, ttl: w.TTL})
		return
	}
	var url, name string
	var value []byte
	if err == nil {
		url, value, err = resource.Unwrap(a)
	}
	if err == nil && url != typ.URL() {
		err = foreign(typ, url)
	}
	if err == nil {
		name, err = resource.Name(typ, value)
	}
	if err != nil {
		p.refuse(i, err)
		return
	}
	p.addChanged(typ, i, item{name: canonicalName(name), version: p.version, sum: xxh3.Hash128(value), ttl: w.TTL, bytes: value})
}

// refuse notes that resource number i is none.
func (p *pieces) refuse(i int, err error) {
	p.partial = true
	p.faults.add(fmt.Errorf("resources[%d]: %w", i, err))
}

// addSame adds resource number i if one of the next places has the same.
func (p *pieces) addSame(typ resource.Type, i int, sum xxh3.Uint128) bool {
	for k := p.next; k < min(p.next+1+maxGone, len(p.latest)); k++ {
		if old := p.latest[k]; old.sum == sum {
			p.next = k + 1
			if p.seen == nil || p.first(typ, i, old.sub.entry.key.name) {
				p.places = append(p.places, old)
			}
			return true
		}
	}
	return false
}

// addChanged adds resource number i, which is not as it was.
func (p *pieces) addChanged(typ resource.Type, i int, it item) {
	inPlace := p.next < len(p.latest) && p.latest[p.next].sub.entry.key.name == it.name
	if inPlace {
		p.next++
	}
	if inPlace && p.seen == nil || p.first(typ, i, it.name) {
		it.at = len(p.places)
		p.places = append(p.places, place{})
		p.items = append(p.items, it)
	}
}

// first reports whether no resource before number i has its name. As long as all of them
// come in the order of the latest response, this need not be asked.
func (p *pieces) first(typ resource.Type, i int, name string) bool {
	if p.seen == nil {
		p.seen = make(map[string]struct{}, cap(p.places))
		for _, pl := range p.places {
			if pl.sub != nil {
				p.seen[pl.sub.entry.key.name] = struct{}{}
			}
		}
		for j := range p.items {
			p.seen[p.items[j].name] = struct{}{}
		}
	}
	return p.see(typ, i, name)
}

// sameLocked reports whether the cache has the resources in pieces.places still.
func (r *response) sameLocked() bool {
	if len(r.latest) > 0 && r.server.types[r.typ].places == nil {
		return false // one of them was dropped
	}
	for _, pl := range r.places {
		if pl.sub != nil && !r.inCacheLocked(pl.sub.entry, pl.sum) {
			return false
		}
	}
	return true
}

// applySameLocked is for the resources in pieces.places: what it takes for the others comes
// to little.
func (r *response) applySameLocked(t *subscriptions) {
	s := r.server
	for _, pl := range r.places {
		sub := pl.sub
		if sub == nil {
			continue
		}
		s.relation.status.Types[r.typ].Valid++
		if !sub.unsubscribing {
			r.wanted++
		}
		sub.answeredLocked()
		sub.received, sub.round = true, t.round
		e := sub.entry
		s.c.acceptLocked(e, acceptedVersion{e.latestLocked(), e.sum, r.version, s.cfg, r.at, nil})
		e.ttlTimer.StopLocked() // it came without a time to live
	}
}

// keepPlacesLocked remembers where resources are, but for those that are not in the cache.
func (t *subscriptions) keepPlacesLocked(places []place) {
	places = slices.DeleteFunc(places, func(pl place) bool { return pl.sub == nil })
	if len(places) < cap(places)/2 {
		places = slices.Clone(places)
	}
	t.places = places
}

// deleteLocked deals with resources that a response of a type whose responses are
// complete does not have any more.
func (sotw) deleteLocked(s *server, typ resource.Type, _ message, partial bool) {
	if !complete(typ) || partial {
		return
	}
	t := &s.types[typ]
	if t.whole {
		return
	}
	for _, sub := range t.subs {
		switch {
		case !sub.received || sub.round == t.round:
		case sub.unsubscribing:
			// The server has heard of it, or has deleted the resource. Either
			// way it would send it to who asks anew.
			s.dropLocked(sub.entry)
		default:
			s.removedLocked(sub)
		}
	}
}

func (sotw) acknowledgeLocked(s *server, typ resource.Type, version string, a answer) {
	t := &s.types[typ]
	t.nonce, t.nack = a.nonce, a.rejection
	if a.rejection != (rejection{}) {
		s.nackLocked(typ)
		return
	}
	t.version, t.lastNack = version, rejection{}
	t.dirty = true
	s.notify()
}

// nackLocked makes a NACK due: at once, or when Options.BackoffBase has passed
// since the one before, unless another request carries it earlier. A server that
// answers a request for whatever is newer than the version in it sends what was
// rejected again as soon as it hears of the rejection (as go-control-plane's caches
// do, at least for the first version), and the two would go round as fast as they
// can. What was logged just now is not logged again.
func (s *server) nackLocked(typ resource.Type) {
	t := &s.types[typ]
	if t.nackTimer.RunningLocked() {
		return
	}
	s.logRejectionLocked(typ, t.nack)
	t.dirty = true
	s.notify()
	s.startLocked(&t.nackTimer, s.c.opts.BackoffBase, func() {
		if t.nack != (rejection{}) {
			s.nackLocked(typ)
		}
	})
}

// sendsLocked is false if a request has left the resource out, unless the server
// ignored the request: a response was under way then. If responses of the type are
// complete, that response has the resource, so a response with it is the proof. If
// they are not, there is none, and the cache has to do. A server that does not send
// changes any more sends the resource when it is asked for anew (T-WATCH-3).
func (sotw) sendsLocked(sub *subscription) bool {
	return !complete(sub.entry.key.typ) || !sub.unsubscribing || sub.round > sub.omitted
}

// status is what a request says about the rejection.
func (n rejection) status() *statuspb.Status {
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: n.fault}
}
