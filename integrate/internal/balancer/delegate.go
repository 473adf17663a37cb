// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
)

// pickByChild lets a child policy pick (A52): that of a group which the snapshot has drawn, after
// drops and circuit breaker, or, if all endpoints have failed, one that returns its error.
func (p *stablePicker) pickByChild(k *pick, c *clusterView) (destination, error) {
	if k.res.Outcome == picker.Failed {
		return p.failed(k, c)
	}
	g := c.groups[k.res.Index]
	childPicker := g.childPicker.Load()
	result, h, err := childPicker.pick(k.info)
	if err != nil {
		k.s.Snapshot.Cancel(k.res)
		return destination{}, p.childErr(k.s, g, childPicker, err)
	}
	if tried := k.call.Tried(); tried != nil {
		result, h = c.pickUntried(k.info, tried, g, result, h)
	}
	e := h.endpoint.Load()
	e.Begin()
	return c.picked(e, &result), nil
}

// picked returns the destination of an RPC that a child policy has picked for. Its end is reported
// to both the child and the counters of the endpoint.
func (c *clusterView) picked(e *endpoint, by *balancer.PickResult) (to destination) {
	if i, ok := c.indexes[e]; ok {
		to = c.destination(i, nil)
	}
	to.result, to.metadata = result{by.SubConn, e.done}, by.Metadata
	if theirs := by.Done; theirs != nil {
		to.done = func(info balancer.DoneInfo) {
			theirs(info)
			e.done(info)
		}
	}
	return to
}

// pick picks by the child's picker. If the SubConn is not the child's, or is not READY, it
// returns ErrNoSubConnAvailable. gRPC itself would let the RPC wait without reporting that to
// the child.
func (s *childPicker) pick(info balancer.PickInfo) (balancer.PickResult, *childSubConn, error) {
	result, err := s.Pick(info)
	if err != nil {
		return balancer.PickResult{}, nil, err
	}
	if h, ok := result.SubConn.(*childSubConn); ok && h.ready.Load() {
		if c := h.conn.Load(); c != nil {
			result.SubConn = c.subConn()
			return result, h, nil
		}
	}
	discardPick(result, nil)
	return balancer.PickResult{}, nil, balancer.ErrNoSubConnAvailable
}

// failed lets a child policy in TRANSIENT_FAILURE return its error (T-LOC-1), unless the cluster
// could not be compiled. The child may still pick an endpoint; the RPC is then subject to drops and
// circuit breaker like any other.
func (p *stablePicker) failed(k *pick, c *clusterView) (destination, error) {
	if k.s.Snapshot.ClusterErr(int(k.res.Cluster)) != nil {
		return destination{}, p.wait(k.s, c.failed)
	}
	for _, g := range c.groups {
		if g == nil || !g.kind.Traits().Delegates {
			continue
		}
		childPicker := g.childPicker.Load()
		result, h, err := childPicker.pick(k.info)
		if err != nil {
			return destination{}, p.childErr(k.s, g, childPicker, err)
		}
		e := h.endpoint.Load()
		if res := k.s.Snapshot.PickEndpoint(k.res.Route, k.res.Cluster, 0, &e.EndpointState, k.r); res.Outcome != picker.Picked {
			err = c.rejections.status(res)
			discardPick(result, err)
			return destination{}, err
		}
		return c.picked(e, &result), nil
	}
	return destination{}, p.wait(k.s, c.failed)
}

// childErr returns the error of an RPC for which a child policy returned an error. A status is
// final. With any other error the RPC waits for another picker of the child.
func (p *stablePicker) childErr(s *pickState, g *group, childPicker *childPicker, err error) error {
	if _, final := status.FromError(err); final {
		return err
	}
	childPicker.exitIdle()
	p.waiting.Store(true)
	if g.childPicker.Load() != childPicker {
		return errPickAgain
	}
	if errors.Is(err, balancer.ErrNoSubConnAvailable) {
		err = nil
	}
	return p.wait(s, err)
}

// maxRepicks limits how often a child policy is asked to pick again. Picks of child policies
// cannot exclude endpoints.
const maxRepicks = 10

// pickUntried returns the pick of the child of group g, or another pick if its endpoint was tried
// and the child, or the child of another group, has an untried endpoint.
func (c *clusterView) pickUntried(info balancer.PickInfo, tried *rpc.Tried, g *group, result balancer.PickResult, h *childSubConn) (balancer.PickResult, *childSubConn) {
	if !tried.Has(result.SubConn) {
		return result, h
	}
	for _, other := range append([]*group{g}, c.groups...) {
		if other == nil {
			continue
		}
		for range maxRepicks {
			again, of, err := other.childPicker.Load().pick(info)
			if err != nil {
				break
			}
			if !tried.Has(again.SubConn) {
				discardPick(result, nil)
				return again, of
			}
			discardPick(again, nil)
		}
	}
	return result, h
}

// discardPick ends an unused pick of a child policy.
func discardPick(r balancer.PickResult, err error) {
	if r.Done != nil {
		r.Done(balancer.DoneInfo{Err: err})
	}
}

// exitIdleAll asks IDLE children to connect, because an RPC requires a connection. The first
// such RPC takes the balancer's mutex, later RPCs only load an atomic.
func exitIdleAll(groups []*group) {
	for _, g := range groups {
		if g != nil {
			g.childPicker.Load().exitIdle()
		}
	}
}

func (s *childPicker) exitIdle() {
	if !s.idle || s.exitIdleRequested.Swap(true) {
		return
	}
	s.child.leaf.entry.do(func() {
		if !s.child.closed {
			s.child.exitIdle()
		}
	})
}
