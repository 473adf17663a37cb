// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/picker"
)

// kernelState converts a gRPC state to the kernel's.
func kernelState(s connectivity.State) picker.Connectivity {
	switch s {
	case connectivity.Ready:
		return picker.Ready
	case connectivity.Idle:
		return picker.Idle
	case connectivity.Connecting:
		return picker.Connecting
	default:
		return picker.TransientFailure
	}
}

// grpcState converts a kernel state to gRPC's.
func grpcState(s picker.Connectivity) connectivity.State {
	return [...]connectivity.State{
		picker.Idle: connectivity.Idle, picker.Connecting: connectivity.Connecting,
		picker.Ready: connectivity.Ready, picker.TransientFailure: connectivity.TransientFailure,
	}[s]
}

// stateName returns gRPC's name of a state.
func stateName(s picker.Connectivity) string {
	return grpcState(s).String()
}

// ejected returns the number of ejected endpoints: O(endpoints).
func (p *priority) ejected() (n int) {
	for e := range p.endpoints {
		if e.Ejected {
			n++
		}
	}
	return n
}

// empty reports whether the priority has no endpoints.
func (p *priority) empty() bool { return p.counts == [4]int{} }

// failureDetails returns the details of a priority without an endpoint to pick, and the reason code:
// it has no endpoints, or none is reachable, or TLS failed. O(endpoints).
func (p *priority) failureDetails() (msg, reason string) {
	if p.empty() {
		return whyLeafEmpty(p.leaf.cfg), ReasonNoEndpoints
	}
	reason = ReasonUnreachable
	if note := p.leaf.cfg.ResolutionNote; note != nil {
		msg += fmt.Sprintf(" (%v)", note)
	}
	if n := p.ejected(); n > 0 {
		msg += fmt.Sprintf("; %d of its endpoints are ejected as outliers", n)
	}
	if err := p.leaf.lastErr; err != nil {
		msg += fmt.Sprintf("; latest connection error: %v", err)
		if strings.Contains(err.Error(), "authentication handshake failed") { // gRPC's text
			reason = ReasonTLS
		}
	}
	return msg, reason
}

// shortfall returns what the priority lacks to get RPCs.
func (p *priority) shortfall() string {
	if p.empty() {
		return fmt.Sprintf("no targets to pick from in priority %d", p.index)
	}
	return fmt.Sprintf("no endpoint of priority %d is reachable", p.index)
}

// unreachable returns why RPCs leave the priority.
func (p *priority) unreachable() string {
	about, _ := p.failureDetails()
	return p.shortfall() + about
}

// connectivity aggregates the states of the priority's endpoints, as weighted_target over
// round_robin does, or by the rules of ring_hash (T-RING-7). Only a priority that connects on
// demand, or has custom children, is ever IDLE.
func (p *priority) connectivity() picker.Connectivity {
	if p.leaf.delegates() {
		return p.groupState()
	}
	if p.leaf.onDemand() {
		state, _ := p.onDemandState()
		return state
	}
	switch {
	case p.counts[picker.Ready] > 0:
		return picker.Ready
	case p.counts[picker.Ready]+p.counts[picker.Connecting]+p.counts[picker.Idle] > 0:
		return picker.Connecting
	default:
		return picker.TransientFailure
	}
}

// takesRPCs reports whether a priority in a state gets RPCs. An IDLE priority does, because
// RPCs make it connect.
func takesRPCs(s picker.Connectivity) bool { return s == picker.Ready || s == picker.Idle }

// groupState aggregates the groups' states as weighted_target does. A group that does not exist
// yet counts as connecting.
func (p *priority) groupState() picker.Connectivity {
	var has [4]bool
	for i, l := range p.localities {
		switch {
		case i < len(p.groups) && p.groups[i] != nil:
			has[p.groups[i].state] = true
		case l.usable() && !(p.leaf.cfg.Policy.Flat && len(p.groups) > 0 && p.groups[0] != nil):
			has[picker.Connecting] = true
		}
	}
	for _, s := range []picker.Connectivity{picker.Ready, picker.Connecting, picker.Idle} {
		if has[s] {
			return s
		}
	}
	return picker.TransientFailure
}

// onDemandState returns the state of a priority that connects on demand, and whether the
// priority must connect an endpoint itself to recover (T-RING-7), since it may get no RPCs.
func (p *priority) onDemandState() (state picker.Connectivity, connectOne bool) {
	return picker.RingState(p.counts[picker.Idle], p.counts[picker.Connecting], p.counts[picker.Ready], p.counts[picker.TransientFailure])
}
