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

	"github.com/xdslb/xdslb/xds/internal/adscodec"
	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
)

// delta is the incremental variant: requests say which names come and go, responses
// have the resources that changed, each with a version, and the names of resources that
// are gone.
//
// A server processes every request, whatever its nonce, so subscriptions depend on the order of
// requests only. Requests with subscriptions have no nonce, which is for ACKs and NACKs
// only: Istio ignores requests with an outdated one. Every response is answered, in order.
type delta struct{}

// deltaType is the state of a type on a stream.
type deltaType struct {
	// subscribed has the names to which the client is subscribed, as seen by the server when it has
	// read all requests. A name leaves the set only by a request that unsubscribes.
	subscribed map[string]struct{}
	// changed contains the names whose subscriptions may have to change.
	changed map[string]struct{}
	// left has the times at which requests have unsubscribed from names that rest; swept is
	// when expired times were last removed. resting has the names that are wanted again, and rest
	// runs while there are any. See restLocked.
	left    map[string]time.Time
	swept   time.Time
	resting map[string]struct{}
	rest    timing.Timer

	// answers are the ACKs and NACKs that are due, oldest first.
	answers []answer
}

// maxAnswers bounds the answers that wait for a server that does not read. The oldest ones are
// dropped.
const maxAnswers = 256

// String returns the name of the RPC.
func (delta) String() string { return "DeltaAggregatedResources" }

func (delta) open(ctx context.Context, cc *grpc.ClientConn) (adsStream, error) {
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).DeltaAggregatedResources(ctx, grpc.ForceCodecV2(adscodec.New()))
	return deltaStream{st}, err
}

// newProtocol returns a state that records no changes: openedLocked adds all names to changed.
func (delta) newProtocol() protocol { return &deltaType{} }

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

func (r deltaResponse) Size() int { return proto.Size(r.DeltaDiscoveryResponse) }

func (r deltaResponse) Free() {}

// removed returns the names that the response reports as removed.
func (r deltaResponse) removed() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, name := range r.GetRemovedResources() {
			if !yield(resource.CanonicalName(name)) {
				return
			}
		}
		for _, name := range r.GetRemovedResourceNames() {
			if !yield(resource.CanonicalName(name.GetName())) {
				return
			}
		}
	}
}

// maxRequest approximately bounds the bytes of names and versions in a request: a quarter of the
// default limit of gRPC servers.
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

func (d *deltaType) requestLocked(t *subscriptions, node *corev3.Node) (request, []*subscription) {
	if len(d.answers) > 0 && (d.answers[0].rejection == (rejection{}) || !t.nackTimer.RunningLocked()) {
		return d.answerLocked(t, node), nil
	}
	c := d.changesLocked(t)
	t.dirty = len(d.changed) > 0
	// A first request without subscriptions would be a wildcard (T-XDS-2).
	if len(c.subscribe) == 0 && len(c.unsubscribe) == 0 {
		return nil, nil
	}
	req := &discoveryv3.DeltaDiscoveryRequest{
		Node:                     node,
		TypeUrl:                  t.typ.URL(),
		ResourceNamesSubscribe:   c.subscribe,
		ResourceNamesUnsubscribe: c.unsubscribe,
		InitialResourceVersions:  c.versions,
	}
	t.sent = true
	t.peer.sentVersions = t.peer.sentVersions || len(c.versions) > 0
	return req, c.awaited
}

// answerLocked returns the ACK or NACK that is due. After a NACK the next one, and all requests
// behind it, wait for Options.BackoffBase, as in the other variant: see sotwType.nackLocked.
func (d *deltaType) answerLocked(t *subscriptions, node *corev3.Node) request {
	a := d.answers[0]
	d.answers = slices.Delete(d.answers, 0, 1)
	req := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: t.typ.URL(), ResponseNonce: a.nonce}
	if a.rejection == (rejection{}) {
		t.acknowledgedLocked()
		return req
	}
	req.ErrorDetail = a.rejection.status()
	t.logRejectionLocked(a.rejection)
	for _, sub := range a.refetch {
		sub.refetch = true
		t.changedLocked(sub.entry.key.name)
	}
	t.peer.core.startLocked(&t.nackTimer, t.peer.core.opts.BackoffBase, t.dirtyLocked)
	return req
}

// changes are the changes of subscriptions in a request.
type changes struct {
	subscribe, unsubscribe []string
	versions               map[string]string // that the client has, in the first request of a stream
	awaited                []*subscription   // subscriptions that wait for an answer
	size                   int               // approximate bytes of names and versions
}

// room reserves n bytes, and reports whether there is room for them.
func (c *changes) room(n int) bool {
	const overhead = 16 // of tags and lengths
	if c.size+n+overhead > maxRequest && c.size > 0 {
		return false
	}
	c.size += n + overhead
	return true
}

// changesLocked returns the difference between the subscriptions of the server and the wanted
// ones. Names for which there is no room are left to the next request.
func (d *deltaType) changesLocked(t *subscriptions) (c changes) {
	claims := !t.sent && !t.peer.exhausted && t.claimsLocked()
	for name := range d.changed {
		if !c.room(len(name)) {
			break
		}
		delete(d.changed, name)
		sub := d.wantedLocked(t, name)
		switch _, subscribed := d.subscribed[name]; {
		case sub != nil && !subscribed && d.restLocked(t, name):
		case sub != nil && !subscribed:
			claimed := claims && c.claimLocked(sub)
			sub.received, sub.refetch = claimed, false
			sub.timer.StopLocked()
			c.subscribe = append(c.subscribe, name)
			d.subscribed[name] = struct{}{}
			if t.awaitsLocked(sub) {
				c.awaited = append(c.awaited, sub)
			}
		case subscribed && (sub == nil || sub.refetch || t.awaitsLocked(sub) && !sub.timer.RunningLocked()):
			// A server need not answer a subscription that it has already, and
			// go-control-plane does not.
			c.unsubscribe = append(c.unsubscribe, name)
			delete(d.subscribed, name)
			d.leaveLocked(t.peer.core.rest, name)
			if sub != nil {
				d.restLocked(t, name)
			}
		}
	}
	slices.Sort(c.subscribe)
	slices.Sort(c.unsubscribe)
	return c
}

// wantedLocked returns the subscription to a name that is wanted, nil if it is not.
func (d *deltaType) wantedLocked(t *subscriptions, name string) *subscription {
	sub := t.subs[name]
	switch {
	case sub == nil || sub.unsubscribing:
		return nil
	case sub.entry.watchedLocked():
		return sub
	}
	if _, subscribed := d.subscribed[name]; subscribed {
		t.beginUnsubscribeLocked(sub)
	} else {
		t.dropLocked(sub.entry)
		delete(d.changed, name)
	}
	return nil
}

// leaveLocked records that a request unsubscribes from a name.
func (d *deltaType) leaveLocked(rest time.Duration, name string) {
	now := time.Now()
	if now.Sub(d.swept) > rest {
		maps.DeleteFunc(d.left, func(_ string, at time.Time) bool { return now.Sub(at) >= rest })
		d.swept = now
	}
	d.left[name] = now
}

// restLocked reports whether a name rests: a request has unsubscribed from it less than restTime ago.
// It is subscribed to again after that. Until then responses that are in flight arrive, and the
// answer to the request: some servers report the resource as removed. Responses do not identify the
// request that they answer, so they would count as answers to the next subscription. The
// cache is used meanwhile.
func (d *deltaType) restLocked(t *subscriptions, name string) bool {
	left, ok := d.left[name]
	wait := t.peer.core.rest - time.Since(left)
	if !ok || wait <= 0 {
		return false
	}
	d.resting[name] = struct{}{}
	if !d.rest.RunningLocked() {
		t.peer.core.startLocked(&d.rest, wait, func() {
			maps.Copy(d.changed, d.resting)
			clear(d.resting)
			t.dirtyLocked()
		})
	}
	return true
}

// claimLocked adds the version of a resource that the cache has from this server to the
// versions that the request claims, so that the server need not send it again, and reports
// whether it did. A resource with an error is not claimed, since the server could not correct
// it by sending nothing. The server has to send resources that are not claimed.
//
// The names are in the request twice, since the first request subscribes to all of them as
// well. A version states the client's present resources, not the wanted resources, and no state
// outlives a stream: "the reconnecting client must provide the server with all resource names
// it is interested in" (xDS protocol, "Incremental xDS").
func (c *changes) claimLocked(sub *subscription) bool {
	e := sub.entry
	if e.state != Acked || e.version == "" || !sub.received || !c.room(len(e.key.name)+len(e.version)) {
		return false
	}
	if c.versions == nil {
		c.versions = map[string]string{}
	}
	c.versions[e.key.name] = e.version
	return true
}

func (r deltaResponse) readInto(p *splitResponse) {
	n := min(len(r.GetResources()), 1<<12) // few may be wanted, or many invalid
	p.version, p.items, p.seen = r.GetSystemVersionInfo(), make([]resourceUpdate, 0, n), make(map[string]struct{}, n)
	for i, res := range r.GetResources() {
		if p.interrupted(i) {
			return
		}
		name, err := deltaName(p.typ, res)
		var ttl time.Duration
		if err == nil {
			ttl, err = resource.TTL(res.GetTtl())
		}
		if err != nil {
			p.refuse(i, err)
			continue
		}
		p.add(i, resourceUpdate{
			name: resource.CanonicalName(name), at: i, version: res.GetVersion(), bytes: res.GetResource().GetValue(),
			ttl: ttl, heartbeat: res.GetResource() == nil, aliases: res.GetAliases(),
		})
	}
}

// deltaName returns the name of a resource of a response: the name in its wrapper. The content must have
// the same name, or an alias.
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
		return "", typeMismatch(typ, url)
	}
	own, err := resource.Name(typ, res.GetResource().GetValue())
	if err != nil {
		return "", fmt.Errorf("resource %q: %w", name, err)
	}
	if name == "" {
		return own, nil
	}
	if name != own && resource.CanonicalName(name) != resource.CanonicalName(own) && !slices.Contains(res.GetAliases(), own) {
		return "", fmt.Errorf("%v resource %q has the name %q in its content", typ, name, own)
	}
	return name, nil
}

// expiredLocked is always false: the server has to answer each subscription.
func (d *deltaType) expiredLocked(*subscriptions, *subscription) bool { return false }

// deleteLocked deletes the resources that the server reports as removed or missing.
func (d *deltaType) deleteLocked(t *subscriptions, msg message, _ bool) (changed []*entry) {
	gone := func(name string) {
		if e := d.goneLocked(t, name); e != nil {
			changed = append(changed, e)
		}
	}
	for name := range msg.(deltaResponse).removed() {
		gone(name)
		for alias := range maps.Clone(t.aliases[name]) {
			gone(alias)
		}
	}
	return changed
}

// goneLocked is called when the server reports a resource as removed. If the name rests, this is the
// answer to the request that has unsubscribed, so that another request may follow. It returns the
// entry if that changed.
func (d *deltaType) goneLocked(t *subscriptions, name string) *entry {
	sub := t.subs[name]
	_, subscribed := d.subscribed[name]
	delete(d.left, name)
	switch {
	case sub == nil || sub.round == t.round:
		// Not subscribed to, or part of the response, or reported twice.
	case sub.unsubscribing:
		t.dropLocked(sub.entry)
	case !subscribed:
		t.changedLocked(name)
	default:
		if d.deletedLocked(t, sub) {
			return sub.entry
		}
	}
	return nil
}

// deletedLocked is called when a resource does not exist, or not any more. It reports whether the
// entry changed.
func (d *deltaType) deletedLocked(t *subscriptions, sub *subscription) (changed bool) {
	switch e := sub.entry; {
	case sub.received:
		sub.answeredLocked()
		return t.removedLocked(sub)
	case t.awaitsLocked(sub):
		sub.answeredLocked()
		return t.absentLocked(sub, fmt.Errorf("xdslb: %v resource %q not found: xDS server %q reports that it does not exist", t.typ, e.key.name, t.peer.cfg.URI))
	}
	return false
}

func (d *deltaType) acknowledgeLocked(t *subscriptions, _ string, a answer) {
	if len(d.answers) == maxAnswers {
		d.answers = slices.Delete(d.answers, 0, 1)
	}
	d.answers = append(d.answers, a)
	t.dirtyLocked()
}

// sendsLocked is always true: a resource that is wanted again is subscribed to again, and the
// server has to answer. The cache is used until then.
func (delta) sendsLocked(*subscription) bool { return true }
