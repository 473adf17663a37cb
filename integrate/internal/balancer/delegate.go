// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/picker"
)

// delegate lets the child of a group pick (A52). The snapshot has drawn the
// group, and has the RPC through the drops and the circuit breaker.
func (p *stablePicker) delegate(info balancer.PickInfo, s *published, res picker.Result, call *perrpc.Call) (balancer.PickResult, error) {
	g := s.cluster(res.Cluster).groups[res.Index]
	childPicker := g.childPicker.Load()
	var tried *perrpc.Tried
	if call != nil {
		tried = call.Tried()
	}
	result, h, err := childPicker.pick(info)
	if err == nil && tried != nil {
		result, h = s.cluster(res.Cluster).repick(info, tried, g, result, h)
	}
	if err != nil {
		s.Snapshot.Cancel(res)
		return result, p.childErr(s, g, childPicker, err)
	}
	e := h.begin(&result)
	s.rewriteAuthority(&result, res, e)
	s.cluster(res.Cluster).labelEndpoint(info.Ctx, e)
	return result, nil
}

// pick picks by the child's picker. A SubConn that is not the child's, or is not
// READY, is none: gRPC would have the RPC wait for another picker, and not say so.
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
	if result.Done != nil {
		result.Done(balancer.DoneInfo{})
	}
	return balancer.PickResult{}, nil, balancer.ErrNoSubConnAvailable
}

// begin counts the beginning of an RPC that the child has picked for, and has its end
// told to both.
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

// pickFailed lets a child in TRANSIENT_FAILURE say why (T-LOC-1). It may still pick,
// if it knows better; that RPC is admitted like any other.
func (p *stablePicker) pickFailed(info balancer.PickInfo, s *published, res picker.Result, r uint64) (balancer.PickResult, error) {
	c := s.cluster(res.Cluster)
	for _, g := range c.groups {
		if g == nil || g.kind != picker.PolicyCustom {
			continue
		}
		childPicker := g.childPicker.Load()
		result, h, err := childPicker.pick(info)
		if err != nil {
			return result, p.childErr(s, g, childPicker, err)
		}
		if err := c.refusal(s.Snapshot.Admit(res.Cluster, r)); err != nil {
			if result.Done != nil {
				result.Done(balancer.DoneInfo{Err: err})
			}
			return balancer.PickResult{}, err
		}
		e := h.begin(&result)
		s.rewriteAuthority(&result, res, e)
		c.labelEndpoint(info.Ctx, e)
		return result, nil
	}
	return balancer.PickResult{}, p.wait(s, c.failed)
}

// childErr returns the error of an RPC that a child did not pick for: a status is
// final, and any other lets the RPC wait for another picker of the child.
func (p *stablePicker) childErr(s *published, g *group, childPicker *childPicker, err error) error {
	if _, final := status.FromError(err); final && err != nil {
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

// exitIdleAll asks children that are IDLE to connect, because an RPC wants them
// to. The first RPC that does takes the balancer's mutex, others an atomic load.
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
