// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"errors"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/picker"
)

// delegate lets the child of a group pick (A52). The snapshot has drawn the
// group, and has the RPC through the drops and the circuit breaker.
func (p *stablePicker) delegate(info balancer.PickInfo, s *published, res picker.Result) (balancer.PickResult, error) {
	g := s.clusters[res.Cluster].groups[res.Index]
	shown := g.shown.Load()
	result, err := shown.Pick(info)
	if err == nil {
		if h, ok := result.SubConn.(*childConn); ok {
			e := h.begin(&result)
			s.rename(&result, res, e)
			return result, nil
		}
		err = balancer.ErrNoSubConnAvailable // a SubConn that is nobody's
	}
	s.snapshot.Undo(res)
	return p.declined(info, s, g, shown, err)
}

// begin turns a child's pick into gRPC's: its SubConn, the beginning of the RPC
// counted, and the end told to both.
func (h *childConn) begin(r *balancer.PickResult) (e *endpoint) {
	e = h.at.Load()
	e.Begin()
	r.SubConn = h.SubConn
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

// failing lets a child in TRANSIENT_FAILURE say why (T-LOC-1).
func (p *stablePicker) failing(info balancer.PickInfo, s *published, v *clusterView) (balancer.PickResult, error) {
	for _, g := range v.groups {
		if g == nil || g.kind != picker.PolicyCustom {
			continue
		}
		shown := g.shown.Load()
		result, err := shown.Pick(info)
		if h, ok := result.SubConn.(*childConn); ok && err == nil {
			// It knows better. The RPC passed no breaker, so none is told.
			result.SubConn = h.SubConn
			return result, nil
		}
		return p.declined(info, s, g, shown, err)
	}
	return p.wait(info, s, v.failed)
}

// declined lets an RPC wait for another picker of the child, or fail.
func (p *stablePicker) declined(info balancer.PickInfo, s *published, g *group, shown *shownPicker, err error) (balancer.PickResult, error) {
	if _, final := status.FromError(err); final && err != nil {
		return balancer.PickResult{}, err
	}
	shown.rouse()
	p.waiting.Store(true)
	if g.shown.Load() != shown {
		return p.Pick(info)
	}
	if errors.Is(err, balancer.ErrNoSubConnAvailable) {
		err = nil
	}
	return p.wait(info, s, err)
}

// rouse asks children that are IDLE to connect, because an RPC wants them to. The
// first that does takes the balancer's mutex, others an atomic load.
func rouse(groups []*group) {
	for _, g := range groups {
		if g != nil {
			g.shown.Load().rouse()
		}
	}
}

func (s *shownPicker) rouse() {
	if !s.idle || s.asked.Swap(true) {
		return
	}
	b := s.child.b
	b.lock()
	defer b.unlock()
	if !b.closed && !s.child.closed {
		s.child.exitIdle()
	}
}

// wakeWaiting lets RPCs that wait have another look, because a child has another
// picker. b.mu is held.
func (b *lb) wakeWaiting() {
	if b.picker.waiting.Swap(false) || b.stranded {
		b.announce(b.announced)
	}
}
