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

// delegate lets the child policy of a group pick (A52). The snapshot has drawn the group, and
// has applied drops and circuit breaker.
func (p *stablePicker) delegate(k *pick, c *clusterView) (balancer.PickResult, error) {
	g := c.groups[k.res.Index]
	childPicker := g.childPicker.Load()
	result, h, err := childPicker.pick(k.info)
	if err != nil {
		k.s.Snapshot.Cancel(k.res)
		return result, p.childErr(k.s, g, childPicker, err)
	}
	if tried := k.call.Tried(); tried != nil {
		result, h = c.pickUntried(k.info, tried, g, result, h)
	}
	k.begin(c, h, &result)
	return result, nil
}

// begin starts an RPC that a child policy has picked for.
func (k *pick) begin(c *clusterView, h *childSubConn, result *balancer.PickResult) {
	e := h.begin(result)
	if i, ok := c.indexes[e]; ok {
		k.add(result, c.destination(i, nil))
	}
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

// begin counts the start of an RPC that the child has picked for, and arranges that its end is
// reported to both the child and the counters.
func (h *childSubConn) begin(r *balancer.PickResult) (e *endpoint) {
	e = h.endpoint.Load()
	e.Begin()
	ours, theirs := e.done, r.Done
	if theirs == nil {
		r.Done = ours
		return e
	}
	r.Done = func(info balancer.DoneInfo) {
		theirs(info)
		ours(info)
	}
	return e
}

// failed lets a child policy in TRANSIENT_FAILURE return its error (T-LOC-1). The child may
// still pick an endpoint; the RPC is then subject to drops and circuit breaker like any other.
func (p *stablePicker) failed(k *pick, c *clusterView) (balancer.PickResult, error) {
	for _, g := range c.groups {
		if g == nil || g.kind != picker.PolicyCustom {
			continue
		}
		childPicker := g.childPicker.Load()
		result, h, err := childPicker.pick(k.info)
		if err != nil {
			return result, p.childErr(k.s, g, childPicker, err)
		}
		if err := c.rejections.status(k.s.Snapshot.Admit(k.res.Cluster, k.r)); err != nil {
			discardPick(result, err)
			return balancer.PickResult{}, err
		}
		k.begin(c, h, &result)
		return result, nil
	}
	return balancer.PickResult{}, p.wait(k.s, c.failed)
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
