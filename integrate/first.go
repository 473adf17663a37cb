// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/picker"
)

// presentFirst follows gRPC's own pick_first, which connects to the endpoints in
// order, by Happy Eyeballs (A61), and settles for one (A62). Its picker says
// which; RPCs do not go through it. It reports whether that changed.
//
// When the connection is lost pick_first is IDLE until an RPC has it start over.
// One of several, each for a locality, does so at once: RPCs go to those that
// are READY, and none would ask it to.
func (g *group) presentFirst() (changed bool) {
	var selected *endpoint
	switch g.state {
	case picker.Ready:
		res, err := g.current.state.Picker.Pick(balancer.PickInfo{})
		if h, ok := res.SubConn.(*childConn); ok && err == nil {
			h.hold()
			selected = h.at.Load().current()
			g.prio.forget()
		}
	case picker.TransientFailure:
		if g.current.state.ConnectivityState == connectivity.TransientFailure {
			_, g.prio.leaf.lastErr = g.current.state.Picker.Pick(balancer.PickInfo{})
		}
	case picker.Idle:
		if !g.flat {
			g.state = picker.Connecting
			g.current.exitIdle()
		}
	}
	changed = selected != g.selected
	g.selected = selected
	return changed
}

// stateFor returns the state of an endpoint of the group.
func (g *group) stateFor(e *endpoint) picker.Connectivity {
	if g.state == picker.Ready && g.selected != nil && g.selected != e {
		return picker.Idle
	}
	return g.state
}
