// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"iter"
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
	return sotwStream{st}, err
}

func (sotw) newProtocol() protocol { return &sotwType{} }

func (sotw) collections() bool { return false }

// resends is false: a server takes a rejected version as sent.
func (sotw) resends() bool { return false }

// sotwType is the state of a type.
type sotwType struct {
	names   []string // those to ask for, sorted; nil if stale
	version string   // last accepted; outlives the stream (T-XDS-2)
	nonce   string   // last received on this stream
	// nack is the error of the latest response, until a request has reported it. The next NACK waits
	// for subscriptions.nackTimer; see nackLocked.
	nack rejection
}

// sotwStream is a stream whose responses stay in the buffers that they came in.
type sotwStream struct {
	grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
}

func (st sotwStream) recv() (message, error) {
	w := &sotwResponse{}
	if err := st.RecvMsg(w); err != nil {
		return nil, err
	}
	return w, nil
}

func (st sotwStream) send(req request) error { return st.Send(req.(*discoveryv3.DiscoveryRequest)) }

func (w *sotwType) openedLocked(*subscriptions) { w.nonce, w.nack = "", rejection{} }

func (w *sotwType) stopLocked() {}

func (w *sotwType) changedLocked(string) { w.names = nil }

func (w *sotwType) requestLocked(s *server, typ resource.Type, node *corev3.Node) (request, []*subscription) {
	t := &s.types[typ]
	t.dirty = false
	if typ == resource.LbEndpointType {
		s.refuseGlobsLocked()
		return nil, nil
	}
	if !t.sent {
		// A version claims that the cache has what this server sent. A server that goes
		// by it would not send that again, nor a resource that is new to it.
		if !s.claimsLocked(t) || t.lapsed || s.lacksLocked(t) {
			w.version = ""
		}
		t.lapsed = false
	}
	names, awaited := w.namesLocked(s, t)
	if len(names) == 0 && !t.sent {
		return nil, nil
	}
	t.sent = true
	req := &discoveryv3.DiscoveryRequest{
		Node:          node,
		TypeUrl:       typ.URL(),
		ResourceNames: names,
		VersionInfo:   w.version,
		ResponseNonce: w.nonce,
	}
	if w.nack != (rejection{}) {
		req.ErrorDetail = w.nack.status()
		w.nack = rejection{}
	}
	return req, awaited
}

// lacksLocked reports whether the server is to send a resource of the type that it has not
// been asked for.
func (s *server) lacksLocked(t *subscriptions) bool {
	for _, sub := range t.subs {
		if !sub.asked && s.awaitsLocked(sub) {
			return true
		}
	}
	return false
}

// namesLocked returns the names for the request that is about to be sent, without
// those that nobody wants any more, and the subscriptions that wait for an answer.
func (w *sotwType) namesLocked(s *server, t *subscriptions) (names []string, awaited []*subscription) {
	if t.whole && w.names != nil {
		return w.names, nil
	}
	for _, sub := range t.subs {
		if !sub.unsubscribing && len(sub.entry.watchers) == 0 {
			s.beginUnsubscribeLocked(sub)
			w.names = nil
		}
		if sub.unsubscribing {
			sub.omitted, sub.asked = t.round, false
			continue
		}
		sub.asked = true
		if s.awaitsLocked(sub) {
			awaited = append(awaited, sub)
		}
	}
	if w.names == nil {
		w.names = make([]string, 0, len(t.subs))
		for name, sub := range t.subs {
			if !sub.unsubscribing {
				w.names = append(w.names, name)
			}
		}
		slices.Sort(w.names)
	}
	return w.names, awaited
}

// split splits a response into resources. Those that are unchanged since the latest
// response, and in the same order, are in pieces.places and not in items.
func (r *sotwResponse) split(typ resource.Type, latest []place) pieces {
	p := pieces{version: r.GetVersionInfo(), latest: latest, places: make([]place, 0, len(r.parts))}
	for i := range r.parts {
		part := &r.parts[i]
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

// removed returns nothing: a response that is complete implies removals.
func (r *sotwResponse) removed() iter.Seq[string] { return func(func(string) bool) {} }

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

// deleteLocked deals with resources that a response of a type whose responses are
// complete does not have any more.
func (w *sotwType) deleteLocked(s *server, typ resource.Type, _ message, partial bool) {
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

func (w *sotwType) acknowledgeLocked(s *server, typ resource.Type, version string, a answer) {
	t := &s.types[typ]
	w.nonce, w.nack = a.nonce, a.rejection
	if a.rejection != (rejection{}) {
		w.nackLocked(s, typ)
		return
	}
	w.version, t.lastNack = version, rejection{}
	t.dirty = true
	s.notify()
}

// nackLocked makes a NACK due: at once, or when Options.BackoffBase has passed
// since the one before, unless another request carries it earlier. A server that
// answers a request for whatever is newer than the version in it sends what was
// rejected again as soon as it hears of the rejection (as go-control-plane's caches
// do, at least for the first version), and the two would go round as fast as they
// can. What was logged just now is not logged again.
func (w *sotwType) nackLocked(s *server, typ resource.Type) {
	t := &s.types[typ]
	if t.nackTimer.RunningLocked() {
		return
	}
	s.logRejectionLocked(typ, w.nack)
	t.dirty = true
	s.notify()
	s.startLocked(&t.nackTimer, s.c.opts.BackoffBase, func() {
		if w.nack != (rejection{}) {
			w.nackLocked(s, typ)
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
