// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/xds/internal/timing"
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
	// subscribed are the names that the server takes the client to be subscribed to once it
	// has read all requests. A name leaves the set only by a request that unsubscribes.
	subscribed map[string]struct{}
	// changed are the names about which a request may have something to say.
	changed map[string]struct{}
	// left is when requests have unsubscribed from names, for as long as these rest; swept is
	// when it was last cleared of others. resting are those that are wanted again, and rest
	// runs while there are any. See restLocked.
	left    map[string]time.Time
	swept   time.Time
	resting map[string]struct{}
	rest    timing.Timer

	// answers are the ACKs and NACKs that are due, oldest first.
	answers []answer
}

// maxAnswers bounds the answers that wait for a server that does not read: then
// the oldest are left out.
const maxAnswers = 256

// String returns the name of the RPC.
func (delta) String() string { return "DeltaAggregatedResources" }

func (delta) open(ctx context.Context, cc *grpc.ClientConn) (adsStream, error) {
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).DeltaAggregatedResources(ctx, grpc.ForceCodecV2(newADSCodec()))
	return deltaStream{st}, err
}

// newProtocol returns a state that notes no changes: openedLocked takes all names for changed.
func (delta) newProtocol() protocol { return &deltaType{} }

func (delta) collections() bool { return true }

func (delta) resends() bool { return true }

type deltaStream struct {
	grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
}

func (st deltaStream) recv() (message, error) {
	msg, err := st.Recv()
	if err != nil {
		return nil, err
	}
	return deltaResponse{msg}, nil
}

func (st deltaStream) send(req request) error {
	return st.Send(req.(*discoveryv3.DeltaDiscoveryRequest))
}

// deltaResponse is a response.
type deltaResponse struct {
	*discoveryv3.DeltaDiscoveryResponse
}

func (r deltaResponse) size() int { return proto.Size(r.DeltaDiscoveryResponse) }

func (r deltaResponse) free() {}

func (r deltaResponse) removed() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, name := range r.GetRemovedResources() {
			if !yield(canonicalName(name)) {
				return
			}
		}
		for _, name := range r.GetRemovedResourceNames() {
			if !yield(canonicalName(name.GetName())) {
				return
			}
		}
	}
}

// maxRequest is about how many bytes of names and versions a request has at most, a quarter
// of what gRPC's servers accept by default.
const maxRequest = 1 << 20

func (d *deltaType) openedLocked(t *subscriptions) {
	*d = deltaType{subscribed: map[string]struct{}{}, changed: map[string]struct{}{}, left: map[string]time.Time{}, resting: map[string]struct{}{}}
	for name, sub := range t.subs {
		d.changed[name] = struct{}{}
		sub.refetch = false
	}
}

func (d *deltaType) stopLocked() { d.rest.StopLocked() }

func (d *deltaType) changedLocked(name string) {
	if d.changed != nil {
		d.changed[name] = struct{}{}
	}
}

func (d *deltaType) requestLocked(s *server, typ resource.Type, node *corev3.Node) (request, []*subscription) {
	t := &s.types[typ]
	if len(d.answers) > 0 && (d.answers[0].rejection == (rejection{}) || !t.nackTimer.RunningLocked()) {
		return d.answerLocked(s, typ, node), nil
	}
	c := d.changesLocked(s, t)
	t.dirty = len(d.changed) > 0
	// A first request that subscribes to nothing would ask for everything (T-XDS-2).
	if len(c.subscribe) == 0 && len(c.unsubscribe) == 0 {
		return nil, nil
	}
	req := &discoveryv3.DeltaDiscoveryRequest{
		Node:                     node,
		TypeUrl:                  typ.URL(),
		ResourceNamesSubscribe:   c.subscribe,
		ResourceNamesUnsubscribe: c.unsubscribe,
		InitialResourceVersions:  c.versions,
	}
	t.sent = true
	s.claimed = s.claimed || len(c.versions) > 0
	return req, c.awaited
}

// answerLocked returns the ACK or NACK that is due. After a NACK the next one, and what
// is behind it, waits for Options.BackoffBase, as in the other variant: see nackLocked.
func (d *deltaType) answerLocked(s *server, typ resource.Type, node *corev3.Node) request {
	t := &s.types[typ]
	a := d.answers[0]
	d.answers = slices.Delete(d.answers, 0, 1)
	req := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typ.URL(), ResponseNonce: a.nonce}
	if a.rejection == (rejection{}) {
		t.lastNack = rejection{}
		return req
	}
	req.ErrorDetail = a.rejection.status()
	s.logRejectionLocked(typ, a.rejection)
	for _, sub := range a.refetch {
		sub.refetch = true
		s.changedLocked(t, sub.entry.key.name)
	}
	s.startLocked(&t.nackTimer, s.c.opts.BackoffBase, func() {
		t.dirty = true
		s.notify()
	})
	return req
}

// changes is what a request says about subscriptions.
type changes struct {
	subscribe, unsubscribe []string
	versions               map[string]string // that the client has, in the first request of a stream
	awaited                []*subscription   // those that wait for an answer
	size                   int               // bytes of names and versions, about
}

// room reports whether there is room for texts that have n bytes.
func (c *changes) room(n int) bool {
	const overhead = 16 // of tags and lengths
	if c.size+n+overhead > maxRequest && c.size > 0 {
		return false
	}
	c.size += n + overhead
	return true
}

// changesLocked returns how what the server takes to be subscribed differs from what is
// wanted. Names for which there is no room are left to the next request.
func (d *deltaType) changesLocked(s *server, t *subscriptions) (c changes) {
	claims := !t.sent && !s.exhausted && s.claimsLocked(t)
	for name := range d.changed {
		if !c.room(len(name)) {
			break
		}
		delete(d.changed, name)
		sub := d.wantedLocked(s, t, name)
		switch _, subscribed := d.subscribed[name]; {
		case sub != nil && !subscribed && d.restLocked(s, t, name):
		case sub != nil && !subscribed:
			claimed := claims && s.claimLocked(sub, &c)
			sub.received, sub.refetch = claimed, false
			sub.timer.StopLocked()
			sub.restarts = sub.restarts || !claimed
			c.subscribe = append(c.subscribe, name)
			d.subscribed[name] = struct{}{}
			if s.awaitsLocked(sub) {
				c.awaited = append(c.awaited, sub)
			}
		case subscribed && (sub == nil || sub.refetch || s.awaitsLocked(sub) && !sub.timer.RunningLocked()):
			// A server need not answer a subscription that it has already, and
			// go-control-plane does not.
			c.unsubscribe = append(c.unsubscribe, name)
			delete(d.subscribed, name)
			d.leaveLocked(s.c.rest, name)
			if sub != nil {
				d.restLocked(s, t, name)
			}
		}
	}
	slices.Sort(c.subscribe)
	slices.Sort(c.unsubscribe)
	return c
}

// wantedLocked returns the subscription to a name that is wanted, nil if it is not.
func (d *deltaType) wantedLocked(s *server, t *subscriptions, name string) *subscription {
	sub := t.subs[name]
	switch {
	case sub == nil || sub.unsubscribing:
		return nil
	case len(sub.entry.watchers) > 0:
		return sub
	}
	if _, subscribed := d.subscribed[name]; subscribed {
		s.beginUnsubscribeLocked(sub)
	} else {
		s.dropLocked(sub.entry)
		delete(d.changed, name)
	}
	return nil
}

// leaveLocked notes that a request unsubscribes from a name.
func (d *deltaType) leaveLocked(rest time.Duration, name string) {
	now := time.Now()
	if now.Sub(d.swept) > rest {
		maps.DeleteFunc(d.left, func(_ string, at time.Time) bool { return now.Sub(at) >= rest })
		d.swept = now
	}
	d.left[name] = now
}

// restTime is how long a message may be under way: more than any round trip to a server.
const restTime = 100 * time.Millisecond

// restLocked reports whether a name rests: a request has unsubscribed from it less than
// restTime ago. It is subscribed to again after that. Until then what the server has sent
// before arrives, and what it answers: some servers say that the resource is gone. Responses
// do not say which request they answer, so they would be taken for answers to the next
// subscription. The cache is used meanwhile.
func (d *deltaType) restLocked(s *server, t *subscriptions, name string) bool {
	left, ok := d.left[name]
	wait := s.c.rest - time.Since(left)
	if !ok || wait <= 0 {
		return false
	}
	d.resting[name] = struct{}{}
	if !d.rest.RunningLocked() {
		s.startLocked(&d.rest, wait, func() {
			maps.Copy(d.changed, d.resting)
			clear(d.resting)
			t.dirty = true
			s.notify()
		})
	}
	return true
}

// claimLocked adds the version of a resource that the cache has from this server to what
// the request claims, so that the server need not send it again, and reports whether it
// did. A resource that is not in order is not claimed: the server could not correct it by
// sending nothing. A resource that is not claimed has to come.
//
// The names go up twice, for the first request subscribes to all of them as well. A
// version says what the client has and not what it wants, and no state outlives a stream:
// "the reconnecting client must provide the server with all resource names it is
// interested in" (xDS protocol, "Incremental xDS").
func (s *server) claimLocked(sub *subscription, c *changes) bool {
	e := sub.entry
	versions := map[string]string{e.key.name: e.version}
	if e.key.typ == resource.LbEndpointType {
		versions = s.memberVersionsLocked(sub)
	} else if e.state != Acked || e.version == "" {
		return false
	}
	size := 0
	for name, version := range versions {
		size += len(name) + len(version)
	}
	if !sub.received || versions == nil || !c.room(size) {
		return false
	}
	if c.versions == nil {
		c.versions = map[string]string{}
	}
	maps.Copy(c.versions, versions)
	return true
}

func (r deltaResponse) split(typ resource.Type, _ []place) pieces {
	n := min(len(r.GetResources()), 1<<12) // of few that are wanted, or many that are invalid
	p := pieces{version: r.GetSystemVersionInfo(), items: make([]item, 0, n), seen: make(map[string]struct{}, n)}
	for i, res := range r.GetResources() {
		name, err := deltaName(typ, res)
		var ttl time.Duration
		if err == nil {
			ttl, err = resource.TTL(res.GetTtl())
		}
		if err != nil {
			p.faults.add(fmt.Errorf("resources[%d]: %w", i, err))
			continue
		}
		p.add(typ, i, item{
			name: canonicalName(name), at: i, version: res.GetVersion(), bytes: res.GetResource().GetValue(),
			ttl: ttl, heartbeat: res.GetResource() == nil, aliases: res.GetAliases(),
		})
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
func (d *deltaType) deleteLocked(s *server, typ resource.Type, msg message, _ bool) {
	t := &s.types[typ]
	for name := range msg.removed() {
		d.goneLocked(s, t, name)
		for alias := range maps.Clone(t.aliases[name]) {
			d.goneLocked(s, t, alias)
		}
	}
}

// goneLocked notes that the server says that a resource is gone. If it is about a name that
// rests it answers the request that has unsubscribed, so that another may follow.
func (d *deltaType) goneLocked(s *server, t *subscriptions, name string) {
	sub := t.subs[name]
	_, subscribed := d.subscribed[name]
	delete(d.left, name)
	switch {
	case sub == nil || sub.round == t.round:
		// Not asked for, or sent along, or said before.
	case sub.unsubscribing:
		s.dropLocked(sub.entry)
	case subscribed:
		s.deletedLocked(sub)
	default:
		s.changedLocked(t, name)
	}
}

// deletedLocked follows the news that a resource does not exist, or not any more.
func (s *server) deletedLocked(sub *subscription) {
	switch e := sub.entry; {
	case e.emptyLocked() && (sub.received || e.value == nil): // be it late
		s.emptyLocked(sub)
	case sub.received:
		sub.answeredLocked()
		s.removedLocked(sub)
	case s.awaitsLocked(sub):
		sub.answeredLocked()
		s.absentLocked(sub, fmt.Errorf("xds: %v resource %q not found: xDS server %q says that it does not exist", e.key.typ, e.key.name, s.cfg.URI))
	}
}

func (d *deltaType) acknowledgeLocked(s *server, typ resource.Type, _ string, a answer) {
	t := &s.types[typ]
	if len(d.answers) == maxAnswers {
		d.answers = slices.Delete(d.answers, 0, 1)
	}
	d.answers = append(d.answers, a)
	t.dirty = true
	s.notify()
}

// sendsLocked is always true: a resource that was unsubscribed from is subscribed to again
// if it is wanted again, and the server has to answer. Until then the cache is used.
func (delta) sendsLocked(*subscription) bool { return true }
