// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/xds/resource"
)

// sotw is the state-of-the-world variant: a request has all names of its type, and a
// response of type Listener or Cluster all resources.
type sotw struct{}

// String returns the name of the RPC.
func (sotw) String() string { return "StreamAggregatedResources" }

func (sotw) open(ctx context.Context, cc *grpc.ClientConn) (adsStream, error) {
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx, grpc.ForceCodecV2(newSotWCodec()))
	return typedStream[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]{st}, err
}

func (sotw) openedLocked(s *server, t *subscriptions) {
	t.delta = deltaType{}
	// A version claims that the cache has what this server sent. A server that goes
	// by it would not send that again.
	if !t.inCacheLocked(s.cfg) || t.lapsed {
		t.version = ""
	}
	t.lapsed = false
}

func (sotw) requestLocked(s *server, typ resource.Type, node *corev3.Node) (request, []*subscription) {
	t := &s.types[typ]
	t.dirty = false
	if typ == resource.LbEndpointType {
		s.refuseGlobsLocked()
		return nil, nil
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
	for _, sub := range t.subs {
		if !sub.unsubscribing && len(sub.entry.watchers) == 0 {
			s.beginUnsubscribeLocked(sub)
		}
		if sub.unsubscribing {
			sub.omitted = t.round
		} else if s.awaitsLocked(sub) {
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

func (sotw) split(typ resource.Type, m message) pieces {
	msg := m.(*discoveryv3.DiscoveryResponse)
	p := pieces{version: msg.GetVersionInfo(), items: make([]item, 0, len(msg.GetResources()))}
	seen := make(map[string]struct{}, len(msg.GetResources()))
	for i, a := range msg.GetResources() {
		w, err := resource.WrappingOf(a)
		if err == nil && w.Heartbeat {
			// The other resources of its type go without saying then.
			p.partial = true
			p.add(typ, seen, i, item{name: canonicalName(w.Name), heartbeat: true, ttl: w.TTL})
			continue
		}
		var url string
		var value []byte
		if err == nil {
			url, value, err = resource.Unwrap(a)
		}
		if err == nil && url != typ.URL() {
			err = foreign(typ, url)
		}
		var name string
		if err == nil {
			name, err = resource.Name(typ, value)
		}
		if err != nil {
			p.partial = true
			p.nacks = append(p.nacks, fmt.Errorf("resources[%d]: %w", i, err))
			continue
		}
		p.add(typ, seen, i, item{name: canonicalName(name), version: p.version, ttl: w.TTL, bytes: value})
	}
	return p
}

// deleteLocked deals with resources that a response of a type whose responses are
// complete does not have any more.
func (sotw) deleteLocked(s *server, typ resource.Type, _ message, partial bool) {
	if !complete(typ) || partial {
		return
	}
	t := &s.types[typ]
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
