// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"net/netip"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/picker"
)

// hosts are a cluster's endpoints for RPCs of sessions (A55), and for attempts that avoid
// some, as of one publication: those of the priority in use, by endpoint index. Other
// targets have none. Sessions go to other priorities of the leaf as well, as long as they are
// connected there (A75): such endpoints come behind, and only RPCs of their sessions get their
// indexes.
type hosts struct {
	list   []host
	others []pick // of the hosts that come behind
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

// findHosts returns the hosts of a priority, with sessions also those of all priorities of its
// leaf: O(endpoints).
func findHosts(p *priority, all []*priority, sessions bool) *hosts {
	h := &hosts{list: make([]host, 0, p.size())}
	if sessions {
		h.byAddr = map[netip.AddrPort]int32{}
	}
	for k, l := range p.localities {
		for i, e := range l.endpoints {
			h.add(host{e, l.cfg.At(i), e.Connectivity, int32(k)}, p.leaf.cfg.Override)
		}
	}
	if sessions {
		h.addOthers(all)
	}
	return h
}

// add adds a host, and its addresses if sessions may go there.
func (h *hosts) add(it host, allowed picker.OverrideHosts) {
	if it.e.Ejected {
		it.state = picker.TransientFailure // A50
	}
	index := int32(len(h.list))
	h.list = append(h.list, it)
	if draining := it.cfg.Health == picker.Draining; h.byAddr == nil || draining && !allowed.Draining || !draining && allowed.NotHealthy {
		return
	}
	h.byAddr[it.cfg.Addr] = index
	if it.cfg.Extra != nil {
		for _, a := range it.cfg.Extra.Addrs {
			h.byAddr[a] = index
		}
	}
}

// addOthers adds what is READY of the leaf's priorities that are not in use.
func (h *hosts) addOthers(all []*priority) {
	used := make(map[*tally]bool)
	for i := range h.list {
		used[h.list[i].e.loc.tally] = true
	}
	for _, p := range all {
		if used[&p.tally] || p.leaf.delegates() {
			continue
		}
		for _, l := range p.localities {
			for i, e := range l.endpoints {
				if e.Connectivity == picker.Ready && !e.Ejected {
					h.add(host{e, l.cfg.At(i), picker.Ready, -1}, p.leaf.cfg.Override)
					h.others = append(h.others, pick{e.conn.subConn(), e.done})
				}
			}
		}
	}
}

// other returns the pick of a host of a priority that is not in use, or nil if that of an
// endpoint index is in use. No hosts have none.
func (h *hosts) other(index int32) *pick {
	if h == nil {
		return nil
	}
	if i := int(index) - (len(h.list) - len(h.others)); i >= 0 {
		return &h.others[i]
	}
	return nil
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

// otherResult is what a pick of a host returns whose priority is not in use.
func (c *clusterView) otherResult(p *pick, cfg *picker.Endpoint, rewritten bool) balancer.PickResult {
	r := p.result()
	if rewritten && cfg.Extra != nil && cfg.Extra.Hostname != "" {
		r.Metadata = metadata.MD{authorityKey: {cfg.Extra.Hostname}}
	}
	return r
}

// subConn returns the connection of an endpoint by its index.
func (c *clusterView) subConn(index int32) balancer.SubConn {
	if other := c.hosts.other(index); other != nil {
		return other.sc
	}
	return c.picks[index].sc
}
