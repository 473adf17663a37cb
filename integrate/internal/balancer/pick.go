// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// stablePicker is the only picker of a channel that gRPC gets (D8). Its snapshot is replaced
// atomically.
type stablePicker struct {
	current atomic.Pointer[pickState]
	// waiting is set if an RPC was queued since gRPC last got a picker.
	waiting atomic.Bool
	noRoute atomic.Uint64 // RPCs that no route matched
}

// pickState is the data that a pick reads: the snapshot, and the gRPC results of its outcomes.
// It is immutable.
type pickState struct {
	rpc.Table
	clusters  persistent.Slice[clusterView] // parallel to Config.Clusters
	routeErrs *routeErrors                  // nil without a Config
	rewrites  bool                          // a route rewrites authorities by hostnames
	// authorities are parallel to Config.Routes, with nil for routes without an authority; nil if
	// no route has one.
	authorities []metadata.MD
	plain       bool // picks add neither authorities nor labels
}

// table returns the configuration of the interceptors.
func (p *stablePicker) table() *rpc.Table { return &p.current.Load().Table }

// Pick implements balancer.Picker. It picks from the snapshot, for the route and cluster that
// an interceptor has bound the RPC to, if any. It starts again if there is a publication
// meanwhile.
func (p *stablePicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	for {
		s := p.current.Load()
		if s.Snapshot == nil {
			if err := p.wait(s, s.Err); err != errPickAgain {
				return balancer.PickResult{}, err
			}
			continue
		}
		var r uint64
		if s.Snapshot.NeedsRandom() {
			r = rand.Uint64()
		}
		var call *rpc.Call
		if s.Plans != nil {
			call = rpc.CallOf(info.Ctx, &s.Table, info.FullMethodName)
		}
		var res picker.Result
		var outside *host
		if call == nil {
			res = s.Snapshot.Pick(info.Ctx, info.FullMethodName, r)
		} else {
			res, outside = s.pickBound(info, call, r)
		}
		if res.Outcome == picker.Picked && s.plain && !call.Records() {
			if c, current := s.clusters.Latest(int(res.Cluster)); current {
				return balancer.PickResult{SubConn: c.results[res.Index].sc, Done: c.results[res.Index].done}, nil
			}
		}
		if result, err := p.finish(&pick{s, info, call, r, res, outside}); err != errPickAgain {
			return result, err
		}
	}
}

// errPickAgain means that a publication came while an RPC was about to wait for one. Pick never
// returns it.
var errPickAgain = errors.New("xdslb: pick again")

// pickBound picks for an RPC that an interceptor has bound: the endpoint of its session, or the
// endpoint that answered a probe best, or else any endpoint of its cluster. outside replaces
// the endpoint at res.Index if its priority is not in use.
func (s *pickState) pickBound(info balancer.PickInfo, call *rpc.Call, r uint64) (res picker.Result, outside *host) {
	ctx := call.Unmutated(info.Ctx)
	route, cluster, outcome := call.Resolve(&s.Table, ctx, info.FullMethodName)
	if outcome != picker.Picked {
		return picker.Result{Outcome: outcome, Route: route, Cluster: cluster}, nil
	}
	found := false
	if session := call.Session(); session != nil {
		res, outside, found = s.pickForSession(session, route, cluster, r)
	}
	if chosen := call.TakeProbed(); chosen != nil && !found {
		var index int32
		if index, found = s.Snapshot.ProbedIndex(cluster, chosen); found {
			res = s.Snapshot.PickEndpoint(route, cluster, index, chosen, r)
		}
	}
	if !found {
		res = s.Snapshot.PickCluster(ctx, route, cluster, r)
	}
	if tried := call.Tried(); tried != nil {
		return s.excludeTried(tried, res, outside)
	}
	return res, outside
}

// A pick is an RPC's outcome in one publication.
type pick struct {
	s       *pickState
	info    balancer.PickInfo
	call    *rpc.Call // nil if no interceptor has bound the RPC
	r       uint64
	res     picker.Result
	outside *host // see pickBound
}

// finish is the second half of Pick, for results that are more than a connection.
//
//go:noinline
func (p *stablePicker) finish(k *pick) (balancer.PickResult, error) {
	to, err := p.outcome(k)
	if err != nil {
		if k.call != nil {
			k.call.Failed(err)
		}
		return balancer.PickResult{}, err
	}
	result := k.result(&to)
	if k.call.Records() {
		k.call.Picked(k.info.Ctx, k.s.Config.Clusters[k.res.Cluster].Name, to.endpoint, &result)
	}
	return result, nil
}

// outcome returns the destination of an attempt, or an error in gRPC's terms. A status ends the
// RPC. With any other error the RPC waits if it is wait-for-ready.
func (p *stablePicker) outcome(k *pick) (to destination, err error) {
	var c *clusterView // nil if the outcome has no cluster
	if k.res.Cluster >= 0 {
		c = k.s.cluster(k.res.Cluster)
	}
	switch k.res.Outcome {
	case picker.Picked:
		return c.destination(k.res.Index, k.outside), nil
	case picker.PickedConnect:
		requestConnect(c.connectable[k.s.Snapshot.ConnectIndex(k.res, k.r)])
		return c.destination(k.res.Index, k.outside), nil
	case picker.QueueConnect:
		requestConnect(c.connectable[k.res.Index])
		return to, p.wait(k.s, nil)
	case picker.Queue:
		exitIdleAll(c.groups)
		return to, p.wait(k.s, nil)
	case picker.Delegate, picker.Failed:
		return p.pickByChild(k, c)
	case picker.Dropped, picker.Overloaded:
		return to, c.rejections.status(k.res)
	case picker.NotForwarding:
		return to, k.s.routeErrs.notForwardingErr(k.res.Route)
	default:
		if ctx := k.info.Ctx; ctx != nil && ctx.Err() != nil { // the routes may not have been evaluated
			return to, status.FromContextError(ctx.Err()).Err()
		}
		p.noRoute.Add(1)
		return to, k.s.routeErrs.noRoute
	}
}

// result returns the result of an attempt to a destination. It labels the attempt, and adds the
// authority if the RPC's route rewrites it.
func (k *pick) result(to *destination) balancer.PickResult {
	if to.labels != nil {
		metric.UpdateLabels(k.info.Ctx, to.labels)
	}
	result := balancer.PickResult{SubConn: to.sc, Done: to.done, Metadata: to.metadata}
	if authority := k.authority(to); authority != nil {
		if result.Metadata = authority; to.metadata != nil {
			result.Metadata = metadata.Join(to.metadata, authority)
		}
	}
	return result
}

// A result is returned by picks of an endpoint: its connection, and its Done.
type result struct {
	sc   balancer.SubConn
	done func(balancer.DoneInfo)
}

// A destination is an endpoint's result, with the data that certain attempts need in addition.
type destination struct {
	result
	endpoint  *picker.Endpoint  // for the session of the RPC; nil without sessions, and if child policies pick
	metadata  metadata.MD       // from a child policy; may be nil
	authority metadata.MD       // nil unless a route rewrites authorities, and the endpoint has a hostname
	labels    map[string]string // nil unless attempts are labeled
}

// destination returns the destination of an endpoint by its index, or of a host outside of the
// priority in use.
func (c *clusterView) destination(index int32, outside *host) destination {
	if outside != nil {
		return *outside.outside
	}
	t := destination{result: c.results[index]}
	if c.hosts != nil {
		t.endpoint = c.hosts.list[index].cfg
	}
	if c.authorities != nil {
		t.authority = c.authorities[index]
	}
	if c.labels != nil {
		t.labels = c.labels[index]
	}
	return t
}

// authority returns the authority for an attempt: that of its route (A111), or of its endpoint (A81).
// It returns nil if the authority is not rewritten.
func (k *pick) authority(to *destination) metadata.MD {
	switch route := k.res.Route; {
	case route < 0:
	case k.s.authorities != nil && k.s.authorities[route] != nil:
		return k.s.authorities[route]
	case k.s.rewrites && to.authority != nil && k.s.Config.Routes[route].AutoHostRewrite:
		return to.authority
	}
	return nil
}

// cluster returns the view of a cluster by its index.
func (s *pickState) cluster(i int32) *clusterView { return s.clusters.At(int(i)) }

// wait returns the error that makes an RPC wait for another snapshot: err, which fails RPCs
// that are not wait-for-ready, or ErrNoSubConnAvailable if the RPC is queued in any case. The
// flag is set before the snapshot is loaded again. If a publication does not see the flag, this
// pick sees its snapshot, and wait returns errPickAgain.
func (p *stablePicker) wait(s *pickState, err error) error {
	p.waiting.Store(true)
	switch {
	case p.current.Load() != s:
		return errPickAgain
	case err != nil:
		return err
	default:
		return balancer.ErrNoSubConnAvailable
	}
}

// The functions below pick the endpoint of a session (A55), and exclude endpoints that earlier
// attempts used, as Envoy's previous_hosts does. The pick itself is the same as for any RPC. Only if it
// returns a tried endpoint, which is rare among many, another endpoint is picked.
//
// Envoy picks again, host_selection_retry_max_attempts times, and then accepts any host. This
// implementation finds an untried endpoint if one is READY, at the cost of examining each
// endpoint.

// pickForSession picks the endpoint of an RPC's session if it is READY, or makes the RPC wait
// if the endpoint is connecting. Otherwise ok is false, and the RPC may go to any endpoint.
func (s *pickState) pickForSession(session *rpc.Session, route, cluster int32, r uint64) (res picker.Result, outside *host, ok bool) {
	c := s.cluster(cluster)
	h := c.hosts.find(session.Hosts)
	if h == nil {
		return res, nil, false
	}
	switch h.state {
	case picker.Ready:
		res = s.Snapshot.PickEndpoint(route, cluster, h.index, h.EndpointState, r)
		switch {
		case res.Outcome == picker.Picked && h.outside != nil:
			return res, h, true
		case res.Outcome == picker.Picked || res.Outcome == picker.Dropped || res.Outcome == picker.Overloaded:
			return res, nil, true
		}
	case picker.Connecting:
		return picker.Result{Outcome: picker.Queue, Route: route, Cluster: cluster}, nil, true
	case picker.Idle:
		if c.connectable != nil && h.cfg.Health != picker.Draining {
			return picker.Result{Outcome: picker.QueueConnect, Route: route, Cluster: cluster, Index: h.index}, nil, true
		}
	}
	return res, nil, false
}

// excludeTried replaces a tried endpoint by an untried one, if one is READY.
func (s *pickState) excludeTried(tried *rpc.Tried, res picker.Result, outside *host) (picker.Result, *host) {
	if res.Outcome != picker.Picked && res.Outcome != picker.PickedConnect {
		return res, outside
	}
	c := s.cluster(res.Cluster)
	if c.hosts == nil {
		return res, outside
	}
	from := outside
	if outside == nil {
		from = &c.hosts.list[res.Index]
	}
	if !tried.Has(c.destination(res.Index, outside).sc) {
		return res, outside
	}
	if i := c.drawUntried(tried, from); i >= 0 {
		from.MoveTo(c.hosts.list[i].EndpointState)
		res.Index, outside = i, nil
	}
	return res, outside
}

// drawUntried draws an untried endpoint by weight, from the locality of the picked one if it has any, and
// none whose server pushes back unless the picked one's does. It returns -1 if there is no such endpoint.
// O(endpoints); does not allocate.
func (c *clusterView) drawUntried(tried *rpc.Tried, picked *host) int32 {
	drawn, total, near := int32(-1), uint64(0), false
	pickedPushesBack := picked.EndpointState.PushedBack()
	for i := range c.results {
		h := &c.hosts.list[i]
		same := h.locality == picked.locality
		if h.state != picker.Ready || h.cfg.Health == picker.Draining || near && !same || tried.Has(c.results[i].sc) ||
			!pickedPushesBack && h.EndpointState.PushedBack() {
			continue
		}
		if same && !near {
			near, total = true, 0
		}
		weight := uint64(max(h.cfg.Weight, 1))
		if total += weight; rand.Uint64N(total) < weight {
			drawn = int32(i)
		}
	}
	return drawn
}
