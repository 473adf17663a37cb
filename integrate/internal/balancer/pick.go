// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// stablePicker is the one picker that gRPC ever sees of a channel (D8). What
// it picks from is swapped under it.
type stablePicker struct {
	current atomic.Pointer[published]
	// waiting says that an RPC was told to wait since gRPC last saw a new
	// picker.
	waiting atomic.Bool
	noRoute atomic.Uint64 // RPCs that no route matched
}

// published is what a pick reads: the snapshot, and what its outcomes mean to
// gRPC. It is immutable.
type published struct {
	perrpc.Table
	clusters  persistent.Slice[clusterView] // parallel to Config.Clusters
	routeErrs *routeErrors                  // nil without a Config
	rewrites  bool                          // a route rewrites authorities
	plain     bool                          // what is picked is all there is to a pick: no authority, no labels
}

// pick is what a pick of an endpoint comes to.
type pick struct {
	sc   balancer.SubConn
	done func(balancer.DoneInfo)
}

func (p *pick) result() balancer.PickResult { return balancer.PickResult{SubConn: p.sc, Done: p.done} }

// table returns what interceptors go by.
func (p *stablePicker) table() *perrpc.Table { return &p.current.Load().Table }

// Pick implements balancer.Picker. It binds the RPC to a cluster, or finds that an
// interceptor did, picks from the snapshot, and looks up what the outcome is in
// gRPC's terms; it starts again only if a publication came in between.
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
		var call *perrpc.Call
		if s.Plans != nil {
			call = perrpc.CallOf(info.Ctx, &s.Table, info.FullMethodName)
		}
		var res picker.Result
		if call == nil {
			res = s.Snapshot.Pick(info.Ctx, info.FullMethodName, r)
			if res.Outcome == picker.Picked && s.plain {
				if c, current := s.clusters.Latest(int(res.Cluster)); current {
					return c.picks[res.Index].result(), nil
				}
			}
		} else {
			res = s.pickBound(info, call, r)
		}
		result, err := p.lookUp(info, s, call, res, r)
		if err != errPickAgain {
			return result, err
		}
	}
}

// errPickAgain says that a publication came while an RPC was to wait for one. It
// never leaves Pick.
var errPickAgain = errors.New("xdslb: pick again")

// pickBound picks for an RPC whose route was chosen by an interceptor: the
// endpoint of its session, if it has one, or any of its cluster.
func (s *published) pickBound(info balancer.PickInfo, call *perrpc.Call, r uint64) picker.Result {
	route, cluster, outcome := call.Bound(&s.Table, info.Ctx, info.FullMethodName)
	if outcome != picker.Picked {
		return picker.Result{Outcome: outcome, Route: route, Cluster: cluster}
	}
	var res picker.Result
	found := false
	if session := call.Session(); session != nil {
		res, found = s.pickForSession(session, route, cluster, r)
	}
	if chosen := call.TakeChosen(); chosen != nil && !found {
		res, found = s.Snapshot.PickProbed(route, cluster, chosen, r)
	}
	if !found {
		res = s.Snapshot.PickCluster(info.Ctx, route, cluster, r)
	}
	if tried := call.Tried(); tried != nil {
		res = s.avoidTried(tried, res)
	}
	return res
}

// lookUp returns an outcome in gRPC's terms, and lets the RPC's Call know. A
// status ends the RPC; any other error lets it wait if it is wait-for-ready.
//
//go:noinline
func (p *stablePicker) lookUp(info balancer.PickInfo, s *published, call *perrpc.Call, res picker.Result, r uint64) (result balancer.PickResult, err error) {
	switch c := s.clusterOf(res); res.Outcome {
	case picker.Picked:
		result = s.result(res)
		c.label(info.Ctx, res.Index)
	case picker.PickedConnect:
		requestConnect(c.connectable[s.Snapshot.ConnectIndex(res, r)])
		result = s.result(res)
		c.label(info.Ctx, res.Index)
	case picker.QueueConnect:
		requestConnect(c.connectable[res.Index])
		err = p.wait(s, nil)
	case picker.Queue:
		exitIdleAll(c.groups)
		err = p.wait(s, nil)
	case picker.Delegate:
		result, err = p.delegate(info, s, res, call)
	case picker.Failed:
		result, err = p.pickFailed(info, s, res, r)
	case picker.Dropped, picker.Overloaded:
		err = c.refusal(res)
	case picker.NotForwarding:
		err = s.routeErrs.notForwardingErr(res.Route)
	default:
		p.noRoute.Add(1)
		err = s.routeErrs.noRoute
	}
	if call != nil {
		s.recordPick(info.Ctx, call, res, result.SubConn, err)
		if err == nil {
			result.Done = call.Done(info.Ctx, result.Done)
		}
	}
	return result, err
}

// refusal returns the status of an RPC that is dropped or that the circuit breaker
// refuses, or nil.
func (c *clusterView) refusal(res picker.Result) error {
	switch res.Outcome {
	case picker.Dropped:
		return c.rejections.drops[res.Index]
	case picker.Overloaded:
		return c.rejections.overload
	}
	return nil
}

// cluster returns the view of a cluster by its index.
func (s *published) cluster(i int32) *clusterView { return s.clusters.At(int(i)) }

// clusterOf returns the view of the outcome's cluster, or nil if it has none.
func (s *published) clusterOf(res picker.Result) *clusterView {
	if res.Cluster < 0 {
		return nil
	}
	return s.cluster(res.Cluster)
}

// recordPick tells an RPC's Call that a pick failed, or which connection was picked, and
// its session which endpoint.
func (s *published) recordPick(ctx context.Context, call *perrpc.Call, res picker.Result, sc balancer.SubConn, err error) {
	if err != nil {
		call.Failed(err)
		return
	}
	if tried := call.Tried(); tried != nil {
		tried.Add(sc)
	}
	if call.Session() == nil {
		return
	}
	var e *picker.Endpoint // nil where children connect the endpoints
	if c := s.cluster(res.Cluster); c.hosts != nil && (res.Outcome == picker.Picked || res.Outcome == picker.PickedConnect) {
		e = c.hosts.list[res.Index].cfg
	}
	call.Picked(ctx, s.Config.Clusters[res.Cluster].Name, e)
}

// result is what a pick of an endpoint returns: with the endpoint's hostname as
// the authority if the route says so (A81).
func (s *published) result(res picker.Result) balancer.PickResult {
	c := s.cluster(res.Cluster)
	if other := c.hosts.other(res.Index); other != nil {
		return c.otherResult(other, c.hosts.list[res.Index].cfg, s.rewritten(res))
	}
	if s.rewritten(res) {
		return c.authorityPicks[res.Index]
	}
	return c.picks[res.Index].result()
}

// wait returns the error that lets an RPC wait for another snapshot: err, with
// which RPCs that do not wait fail, or that of an RPC that is queued in any case.
// The flag is raised before the snapshot is looked at again: a publication that
// does not see the flag is one that this pick sees, and errPickAgain says so.
func (p *stablePicker) wait(s *published, err error) error {
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
