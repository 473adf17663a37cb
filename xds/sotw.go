// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/zeebo/xxh3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/internal/adscodec"
	"github.com/xdslb/xdslb/xds/resource"
)

// sotw is the state-of-the-world variant: a request has all names of its type, and a
// response of type Listener or Cluster all resources.
type sotw struct{}

// String returns the name of the RPC.
func (sotw) String() string { return "StreamAggregatedResources" }

func (sotw) open(ctx context.Context, cc *grpc.ClientConn) (adsStream, error) {
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx, grpc.ForceCodecV2(adscodec.New()))
	return sotwStream{st}, err
}

func (sotw) newProtocol() protocol { return &sotwType{} }

// resends is false: a rejected version counts as sent.
func (sotw) resends() bool { return false }

// sotwType is the state of a type.
type sotwType struct {
	names   []string // of the next request, sorted; nil if outdated
	version string   // last accepted; outlives the stream (T-XDS-2)
	nonce   string   // last received on this stream
	// nack is the error of the latest response, until a request has had it. The next NACK waits
	// for subscriptions.nackTimer; see nackLocked.
	nack rejection
}

// sotwStream is a stream whose responses stay in the buffers in which they were received.
type sotwStream struct {
	grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
}

func (st sotwStream) recv() (message, error) {
	r := &adscodec.Response{}
	if err := st.RecvMsg(r); err != nil {
		return nil, err
	}
	return sotwResponse{r}, nil
}

func (st sotwStream) send(req request) error { return st.Send(req.(*discoveryv3.DiscoveryRequest)) }

// sotwResponse is a response.
type sotwResponse struct{ *adscodec.Response }

func (w *sotwType) openedLocked(t *subscriptions) {
	w.nonce, w.nack = "", rejection{}
	for _, sub := range t.subs {
		sub.refetch = false
	}
}

func (w *sotwType) stopLocked() {}

func (w *sotwType) changedLocked(string) { w.names = nil }

func (w *sotwType) requestLocked(t *subscriptions, node *corev3.Node) (request, []*subscription) {
	t.dirty = false
	if !t.sent {
		// A version claims that the cache has the resources that this server has sent. A server that
		// relies on it would not send them again, nor a resource that is new to it.
		if !t.claimsLocked() || t.lapsed || t.lacksLocked() {
			w.version = ""
		}
		t.lapsed = false
	}
	names, awaited := w.namesLocked(t)
	if len(names) == 0 && !t.sent {
		return nil, nil
	}
	t.sent = true
	req := &discoveryv3.DiscoveryRequest{
		Node:          node,
		TypeUrl:       t.typ.URL(),
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

// namesLocked returns the names for the request that is about to be sent, without
// the names that are not wanted any more, and the subscriptions that wait for an answer.
func (w *sotwType) namesLocked(t *subscriptions) (names []string, awaited []*subscription) {
	if t.whole && w.names != nil {
		return w.names, nil
	}
	for _, sub := range t.subs {
		if !sub.unsubscribing && !sub.entry.watchedLocked() {
			t.beginUnsubscribeLocked(sub)
			w.names = nil
		}
		if sub.unsubscribing || sub.refetch {
			sub.omitted, sub.asked = t.round, false
			continue
		}
		if sub.returned && !sub.asked && !isFullState(t.typ) {
			sub.received = false // the server has to send it on a new subscription
		}
		sub.asked = true
		if t.awaitsLocked(sub) {
			awaited = append(awaited, sub)
		}
	}
	if w.names == nil {
		w.names = make([]string, 0, len(t.subs))
		for name, sub := range t.subs {
			if !sub.unsubscribing && !sub.refetch {
				w.names = append(w.names, name)
			}
		}
		slices.Sort(w.names)
	}
	names = w.names
	for name, sub := range t.subs {
		if sub.refetch {
			sub.refetch = false
			t.changedLocked(name) // the next request has it again
		}
	}
	return names, awaited
}

// expiredLocked leaves a resource out of one request if it was wanted again before the server had
// certainly noticed that it was not wanted. A response that arrived since may have been in flight,
// so that the server has ignored the request without the resource (T-XDS-4). Then it assumes that the
// client still has the resource, and does not send it again.
func (w *sotwType) expiredLocked(t *subscriptions, sub *subscription) bool {
	if !sub.returned || t.round == sub.omitted {
		return false
	}
	sub.returned, sub.refetch = false, true
	t.changedLocked(sub.entry.key.name)
	return true
}

func (r sotwResponse) readInto(p *splitResponse) {
	p.version, p.slots = r.GetVersionInfo(), make([]slot, 0, len(r.Parts))
	for i := range r.Parts {
		if p.interrupted(i) {
			return
		}
		part := &r.Parts[i]
		if part.URL != p.typ.URL() {
			p.addOther(i, part)
			continue
		}
		sum := xxh3.Hash128(part.Value)
		if p.addSame(i, sum) {
			continue
		}
		name, err := resource.Name(p.typ, part.Value)
		if err != nil {
			p.refuse(i, err)
			continue
		}
		p.addChanged(i, resourceUpdate{name: resource.CanonicalName(name), version: p.version, sum: sum, bytes: part.Value})
	}
}

// addOther adds resource number i, which is wrapped or of another type.
func (p *splitResponse) addOther(i int, part *adscodec.Part) {
	a := &anypb.Any{TypeUrl: part.URL, Value: part.Value}
	w, err := resource.WrappingOf(a)
	if err == nil && w.Heartbeat {
		// The response does not imply deletions of the other resources of its type then.
		p.partial = true
		p.addChanged(i, resourceUpdate{name: resource.CanonicalName(w.Name), heartbeat: true, ttl: w.TTL})
		return
	}
	var url, name string
	var value []byte
	if err == nil {
		url, value, err = resource.Unwrap(a)
	}
	if err == nil && url != p.typ.URL() {
		err = typeMismatch(p.typ, url)
	}
	if err == nil {
		name, err = resource.Name(p.typ, value)
	}
	if err != nil {
		p.refuse(i, err)
		return
	}
	p.addChanged(i, resourceUpdate{name: resource.CanonicalName(name), version: p.version, sum: xxh3.Hash128(value), ttl: w.TTL, bytes: value})
}

// deleteLocked deletes the resources that are missing in a response of a type whose responses
// are complete.
func (w *sotwType) deleteLocked(t *subscriptions, _ message, partial bool) (changed []*entry) {
	if !isFullState(t.typ) || partial || t.whole {
		return nil
	}
	for _, sub := range t.subs {
		switch {
		case !sub.received || sub.round == t.round:
		case sub.unsubscribing:
			// The server has processed the unsubscription, or has deleted the resource. Either
			// way it would send the resource on a new subscription.
			t.dropLocked(sub.entry)
		default:
			if t.removedLocked(sub) {
				changed = append(changed, sub.entry)
			}
		}
	}
	return changed
}

func (w *sotwType) acknowledgeLocked(t *subscriptions, version string, a answer) {
	w.nonce, w.nack = a.nonce, a.rejection
	if a.rejection != (rejection{}) {
		w.nackLocked(t)
		return
	}
	w.version = version
	t.acknowledgedLocked()
	t.dirtyLocked()
}

// nackLocked makes a NACK due: at once, or when Options.BackoffBase has passed
// since the previous one, unless another request carries it earlier. A server that
// answers a request with any version newer than the one in it sends the rejected version
// again as soon as it receives the NACK (go-control-plane's caches do, at least for the
// first version), and the two would repeat this as fast as they can. A rejection
// that was logged last is not logged again.
func (w *sotwType) nackLocked(t *subscriptions) {
	if t.nackTimer.RunningLocked() {
		return
	}
	t.logRejectionLocked(w.nack)
	t.dirtyLocked()
	t.peer.core.startLocked(&t.nackTimer, t.peer.core.opts.BackoffBase, func() {
		if w.nack != (rejection{}) {
			w.nackLocked(t)
		}
	})
}

// sendsLocked is false if a request has left the resource out, unless the server ignored the
// request because a response was in flight. If responses of the type are complete, a response with
// the resource is the proof. If they are not, there is no proof, and the cache is used. A server
// that does not send changes any more sends the resource on a new subscription (T-WATCH-3).
func (sotw) sendsLocked(sub *subscription) bool {
	return !isFullState(sub.entry.key.typ) || !sub.unsubscribing || sub.round > sub.omitted
}

// status returns the rejection as the error detail of a request, which must be UTF-8.
func (n rejection) status() *statuspb.Status {
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: strings.ToValidUTF8(n.fault, "\uFFFD")}
}
