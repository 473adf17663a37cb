// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import "github.com/xdslb/xdslb/picker"

// buildCache computes results and state if they are out of date: O(endpoints).
func (p *priority) buildCache() {
	if p.state != nil && !p.stale {
		return
	}
	n := p.size()
	p.stale, p.connectable = false, nil
	if p.leaf.onDemand() {
		p.connectable = make([]*endpoint, 0, n)
	}
	p.results = make([]result, 0, n)
	p.state = make([]picker.LocalityState, 0, len(p.localities))
	for _, l := range p.localities {
		for _, e := range l.endpoints {
			p.results = append(p.results, result{e.conn.subConn(), e.done})
			if p.connectable != nil {
				p.connectable = append(p.connectable, e)
			}
		}
		p.state = append(p.state, picker.LocalityState{Load: l.load, Endpoints: l.endpoints})
	}
}

// setVersions sets the versions in the states of the localities.
func (p *priority) setVersions() {
	for i, l := range p.localities {
		p.state[i].Version = l.version
	}
}
