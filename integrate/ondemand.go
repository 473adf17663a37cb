// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// This file is about priorities whose endpoints are not connected before they
// are needed, since RPCs come to each by their hash (A42, A61).

// requestConnect connects an endpoint that an RPC was to go to. Of the RPCs that ask for
// the same one, only the first after it became IDLE costs more than a load; none
// takes the mutex.
func requestConnect(e *endpoint) {
	if e.RequestConnect() {
		go e.loc.leaf.entry.do(e.connectRequested)
	}
}

// connectRequested connects the endpoint, unless it has left its locality or waits for no RPCs
// any more.
func (e *endpoint) connectRequested() {
	l, i := e.loc, slices.Index(e.loc.endpoints, e)
	if i < 0 || l.tally.phase == dormant || l.leaf.delegates() {
		e.ResetConnectRequest()
		return
	}
	if e.connect(l.cfg.At(i)); e.Connectivity == picker.Idle { // it is drained
		e.ResetConnectRequest()
	}
}

// onDemandState is the state of a priority that connects on demand, and whether one of
// its endpoints has to be connected for it ever to get better (T-RING-7): it may
// get no RPCs.
func (p *priority) onDemandState() (state picker.Connectivity, connectOne bool) {
	return picker.RingState(p.counts[picker.Idle], p.counts[picker.Connecting], p.counts[picker.Ready], p.counts[picker.TransientFailure])
}

// connectOneIdle connects an endpoint that is IDLE, or has the children do so. The
// search goes on where the last one ended, so that n endpoints which fail one after
// the other cost O(n).
func (p *priority) connectOneIdle() {
	for g := range p.liveGroups {
		if g.state == picker.Idle {
			g.current.exitIdle()
		}
	}
	if p.leaf.delegates() {
		return
	}
	n := p.size()
	for range n {
		l, i := p.at(p.next % n)
		p.next = (p.next + 1) % n
		if e := l.endpoints[i]; e.Connectivity == picker.Idle && !e.Draining {
			e.connect(l.cfg.At(i))
			return
		}
	}
}

// at returns the place of the i-th endpoint, localities concatenated:
// O(localities).
func (p *priority) at(i int) (*locality, int) {
	for _, l := range p.localities {
		if i < len(l.endpoints) {
			return l, i
		}
		i -= len(l.endpoints)
	}
	panic("xdslb: no such endpoint")
}
