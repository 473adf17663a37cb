// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/picker"
)

// stablePicker is the one picker that gRPC ever sees of a channel (D8). What
// it picks from is swapped under it.
type stablePicker struct {
	current atomic.Pointer[published]
	// waiting says that an RPC was told to wait since gRPC last saw a new
	// picker.
	waiting atomic.Bool
	wake    func(sleeper)
}

// published is what a pick reads: the snapshot, and what its outcomes mean to
// gRPC. It is immutable.
type published struct {
	snapshot *picker.Snapshot // nil while there is no configuration
	cfg      *picker.Config
	clusters []clusterView // parallel to cfg.Clusters
	fatal    error         // why there is no configuration; nil before the first
	plans    *plans        // what interceptors do; nil if that is nothing
	rewrites bool          // a route rewrites authorities
}

// routed returns the RPC if an interceptor chose its route. Targets without
// such routes do not look.
func (s *published) routed(info balancer.PickInfo) *rpc {
	if s.plans == nil {
		return nil
	}
	call, _ := info.Ctx.Value(rpcKey{}).(*rpc)
	return call
}

// Pick implements balancer.Picker.
func (p *stablePicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	s := p.current.Load()
	if s.snapshot == nil {
		return p.wait(info, s, s.fatal)
	}
	var r uint64
	if s.snapshot.NeedsRandom() {
		r = rand.Uint64()
	}
	if call := s.routed(info); call != nil {
		return p.pickFor(info, s, call, r)
	}
	res := s.snapshot.Pick(info.Ctx, info.FullMethodName, r)
	if res.Outcome == picker.Picked && !s.rewrites {
		return s.clusters[res.Cluster].picks[res.Index], nil
	}
	return p.other(info, s, res, r)
}

// pickFor picks for an RPC whose route was chosen by an interceptor.
func (p *stablePicker) pickFor(info balancer.PickInfo, s *published, call *rpc, r uint64) (result balancer.PickResult, err error) {
	if call.session != nil {
		result, err = p.pickForSession(info, s, call)
	} else {
		result, err = p.other(info, s, call.pick(s, info, r), r)
	}
	if err != nil {
		call.refused(err)
	}
	return result, err
}

// other turns an outcome that is more, or less, than an endpoint into gRPC's
// terms. A status ends the RPC; any other error lets it wait if it is
// wait-for-ready.
//
//go:noinline
func (p *stablePicker) other(info balancer.PickInfo, s *published, res picker.Result, r uint64) (balancer.PickResult, error) {
	switch res.Outcome {
	case picker.Picked:
		return s.result(res), nil
	case picker.PickedWake:
		p.wake(s.clusters[res.Cluster].sleepers[s.snapshot.Asleep(res, r)])
		return s.result(res), nil
	case picker.Wake:
		p.wake(s.clusters[res.Cluster].sleepers[res.Index])
		return p.wait(info, s, nil)
	case picker.Queue:
		rouse(s.clusters[res.Cluster].groups)
		return p.wait(info, s, nil)
	case picker.Delegate:
		return p.delegate(info, s, res)
	case picker.Failed:
		return p.failing(info, s, &s.clusters[res.Cluster])
	case picker.Dropped:
		return balancer.PickResult{}, s.clusters[res.Cluster].drops[res.Index]
	case picker.Overloaded:
		return balancer.PickResult{}, s.clusters[res.Cluster].refused
	case picker.NotForwarding:
		return balancer.PickResult{}, status.Errorf(codes.Unavailable, "xds: the route that matches %q does not forward RPCs", info.FullMethodName)
	default:
		return balancer.PickResult{}, status.Errorf(codes.Unavailable, "xds: no matching route found for %q", info.FullMethodName)
	}
}

// result is what a pick of an endpoint returns: with the endpoint's hostname as
// the authority if the route says so (A81).
func (s *published) result(res picker.Result) balancer.PickResult {
	c := &s.clusters[res.Cluster]
	if s.rewritten(res) {
		return c.renamed[res.Index]
	}
	return c.picks[res.Index]
}

// wait lets an RPC wait for another snapshot, with the error that RPCs which
// do not wait fail with, if any. The flag is raised before the snapshot is
// looked at again: a publication that does not see the flag is one that this
// pick sees.
func (p *stablePicker) wait(info balancer.PickInfo, s *published, err error) (balancer.PickResult, error) {
	p.waiting.Store(true)
	if p.current.Load() != s {
		return p.Pick(info)
	}
	if err == nil {
		err = balancer.ErrNoSubConnAvailable
	}
	return balancer.PickResult{}, err
}
