// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import "github.com/xdslb/xdslb/picker"

// This file is about priorities whose endpoints are not connected before they
// are needed, since RPCs come to each by their hash (A42, A61).

// lazy reports whether the endpoints connect only when an RPC asks for them.
func (p *priority) lazy() bool { return p.leaf.cfg.Policy.Hashes() }

// A sleeper is an endpoint that an RPC may have to wake, as snapshots know it.
type sleeper struct {
	e   *endpoint
	cfg *picker.Endpoint
}

// wake connects an endpoint that an RPC was to go to. Of the RPCs that ask for
// the same one, only the first after it became IDLE costs more than a load; none
// takes the mutex.
func (b *lb) wake(s sleeper) {
	if s.e.roused.Load() || !s.e.roused.CompareAndSwap(false, true) {
		return
	}
	go func() {
		b.lock()
		defer b.unlock()
		e := s.e.current()
		p := e.loc.prio
		if b.closed || !p.started || p.delegates() {
			s.e.roused.Store(false)
			return
		}
		if e.connect(b, s.cfg); e.Connectivity == picker.Idle { // it is drained, but perhaps not for ever
			s.e.roused.Store(false)
		}
		p.cluster.onChange(p)
		b.publishSoon()
	}()
}

// ringState is the state of a lazy priority, and whether one of its endpoints
// has to be woken for it ever to get better (T-RING-7): it may get no RPCs.
func (p *priority) ringState() (state picker.Connectivity, wakeOne bool) {
	return picker.RingState(p.counts[picker.Idle], p.counts[picker.Connecting], p.counts[picker.Ready], p.counts[picker.TransientFailure])
}

// rouse connects an endpoint that is IDLE, or has the children do so. The search
// goes on where the last one ended, so that n endpoints which fail one after the
// other cost O(n).
func (p *priority) rouse() {
	for _, g := range p.groups {
		if g != nil && g.state == picker.Idle {
			g.current.exitIdle()
		}
	}
	if p.delegates() {
		return
	}
	n := p.size()
	for range n {
		l, i := p.at(p.next % n)
		p.next = (p.next + 1) % n
		if e := l.endpoints[i]; e.Connectivity == picker.Idle && !e.draining {
			e.connect(p.cluster.lb, &l.cfg[i])
			return
		}
	}
}

// size is how many endpoints the priority has.
func (p *priority) size() int {
	n := 0
	for _, l := range p.localities {
		n += len(l.endpoints)
	}
	return n
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
