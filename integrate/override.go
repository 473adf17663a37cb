// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"net/netip"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/picker"
)

// hosts are a cluster's endpoints for RPCs of sessions (A55), and for attempts that avoid
// some, as of one publication: those of the priority in use, by endpoint index. Other
// targets have none.
type hosts struct {
	list []host
	// byAddr has the index of the endpoint with an address, if sessions may go to
	// endpoints of its health. It is nil without sessions.
	byAddr map[netip.AddrPort]int32
}

type host struct {
	e        *endpoint
	cfg      *picker.Endpoint
	state    picker.Connectivity
	locality int32
}

// findHosts returns the hosts of a priority: O(endpoints) after a change.
func findHosts(p *priority, sessions bool) *hosts {
	h := &hosts{list: make([]host, 0, p.size())}
	if sessions {
		h.byAddr = map[netip.AddrPort]int32{}
	}
	allowed := p.leaf.cfg.Override
	for k, l := range p.localities {
		for i, e := range l.endpoints {
			cfg, state := l.cfg.At(i), e.Connectivity
			if e.Ejected {
				state = picker.TransientFailure // A50
			}
			index := int32(len(h.list))
			h.list = append(h.list, host{e, cfg, state, int32(k)})
			if !sessions {
				continue
			}
			if draining := cfg.Health == picker.Draining; draining && !allowed.Draining || !draining && allowed.NotHealthy {
				continue
			}
			h.byAddr[cfg.Addr] = index
			if cfg.Extra != nil {
				for _, a := range cfg.Extra.Addrs {
					h.byAddr[a] = index
				}
			}
		}
	}
	return h
}

// setHostsLocked says what picks have to know hosts for: sessions, and attempts that avoid
// some. Other targets do nothing for it.
func (b *lb) setHostsLocked(sessions, avoid bool) {
	if sessions == b.sessions && avoid == b.avoidHosts {
		return
	}
	b.sessions, b.avoidHosts = sessions, avoid
	for _, c := range b.clusters {
		c.setDirty()
	}
}

// pickForSession picks the endpoint that an RPC's session is with, if that is
// READY, or has the RPC wait if the endpoint is about to be. Otherwise ok is false,
// and the RPC may go to any endpoint.
func (s *published) pickForSession(session *perrpc.Session, route, cluster int32, r uint64) (res picker.Result, ok bool) {
	c := s.cluster(cluster)
	i, h := c.hosts.find(session.Hosts)
	if h == nil {
		return res, false
	}
	switch h.state {
	case picker.Ready:
		res = s.Snapshot.Admit(cluster, r)
		res.Route = route
		switch res.Outcome {
		case picker.Picked:
			res.Index = i
			h.e.Begin()
			return res, true
		case picker.Dropped, picker.Overloaded:
			return res, true
		}
	case picker.Connecting:
		return picker.Result{Outcome: picker.Queue, Route: route, Cluster: cluster}, true
	case picker.Idle:
		if c.connectable != nil && h.cfg.Health != picker.Draining {
			return picker.Result{Outcome: picker.QueueConnect, Route: route, Cluster: cluster, Index: i}, true
		}
	}
	return res, false
}

// find returns the first host that has one of the addresses, and its index, or
// nil. A cluster without sessions has no hosts.
func (h *hosts) find(addrs []netip.AddrPort) (int32, *host) {
	if h == nil {
		return 0, nil
	}
	for _, a := range addrs {
		if i, ok := h.byAddr[a]; ok {
			return i, &h.list[i]
		}
	}
	return 0, nil
}
