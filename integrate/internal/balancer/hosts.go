// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"net/netip"

	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/picker"
)

// hosts are a cluster's endpoints for RPCs of sessions (A55), and for attempts that avoid
// certain endpoints. Targets without such RPCs have no hosts.
type hosts struct {
	list []host // by endpoint index
	// byAddr are the hosts that sessions may go to, by each of their addresses: all hosts of
	// the list, and READY hosts from other priorities of the leaf (A75). It is nil without
	// sessions.
	byAddr map[netip.AddrPort]*host
}

// A host is an endpoint at the time of the publication.
type host struct {
	*picker.EndpointState
	cfg      *picker.Endpoint
	state    picker.Connectivity
	locality int32
	index    int32        // of the endpoint
	outside  *destination // instead of the index, if the endpoint's priority is not in use
}

// viewHosts returns the hosts of a priority, and with sessions also the hosts of all priorities
// of its leaf: O(endpoints).
func viewHosts(p *priority, all []*priority, n needs) *hosts {
	h := &hosts{list: make([]host, 0, p.size())}
	for k, l := range p.localities {
		for i, e := range l.endpoints {
			state := e.Connectivity
			if e.Ejected {
				state = picker.TransientFailure // A50
			}
			h.list = append(h.list, host{EndpointState: &e.EndpointState, cfg: l.cfg.At(i), state: state, locality: int32(k), index: int32(len(h.list))})
		}
	}
	if !n.sessions {
		return h
	}
	h.byAddr = make(map[netip.AddrPort]*host, len(h.list))
	for i := range h.list {
		h.admitSessions(&h.list[i], p.leaf.cfg.Override)
	}
	used := map[*tally]bool{}
	for _, l := range p.localities {
		used[l.tally] = true
	}
	for _, p := range all {
		if used[&p.tally] || p.leaf.delegates() {
			continue
		}
		for _, l := range p.localities {
			for i, e := range l.endpoints {
				if e.effectiveState() != picker.Ready {
					continue
				}
				to := &destination{result: result{e.conn.subConn(), e.done}, endpoint: l.cfg.At(i), labels: viewLabels(l)}
				if n.rewrites {
					to.authority = authorityOf(l.cfg.At(i), nil)
				}
				h.admitSessions(&host{EndpointState: &e.EndpointState, cfg: l.cfg.At(i), state: picker.Ready, locality: -1, outside: to}, p.leaf.cfg.Override)
			}
		}
	}
	return h
}

// admitSessions adds a host to byAddr if sessions may use endpoints of its health.
func (h *hosts) admitSessions(it *host, allowed picker.OverrideHosts) {
	if draining := it.cfg.Health == picker.Draining; draining && !allowed.Draining || !draining && allowed.NotHealthy {
		return
	}
	h.byAddr[it.cfg.Addr] = it
	if it.cfg.Extra != nil {
		for _, a := range it.cfg.Extra.Addrs {
			h.byAddr[a] = it
		}
	}
}

// find returns the first host that has one of the addresses, or nil. A cluster without sessions has
// no hosts.
func (h *hosts) find(addrs []netip.AddrPort) *host {
	if h == nil {
		return nil
	}
	for _, a := range addrs {
		if it := h.byAddr[a]; it != nil {
			return it
		}
	}
	return nil
}

const authorityKey = ":authority"

// viewAuthorities returns, by endpoint index, the metadata that makes gRPC use an endpoint's
// hostname as the RPC's :authority (A81). The channel's credentials check it, and
// grpc.CallAuthority takes precedence. Metadata of unchanged hostnames is reused. O(endpoints).
func viewAuthorities(p *priority, old []metadata.MD) []metadata.MD {
	all := make([]metadata.MD, 0, len(p.results))
	for _, l := range p.localities {
		for i := range l.endpoints {
			var was metadata.MD
			if k := len(all); k < len(old) {
				was = old[k]
			}
			all = append(all, authorityOf(l.cfg.At(i), was))
		}
	}
	return all
}

// authoritiesOf returns the authorities of routes (A111), or nil if no route has one.
func authoritiesOf(routes []picker.Route) (list []metadata.MD) {
	for i := range routes {
		if routes[i].Authority == "" {
			continue
		}
		if list == nil {
			list = make([]metadata.MD, len(routes))
		}
		list[i] = metadata.MD{authorityKey: {routes[i].Authority}}
	}
	return list
}

// authorityOf returns the metadata for an endpoint, or was if that is the same.
func authorityOf(cfg *picker.Endpoint, was metadata.MD) metadata.MD {
	if cfg.Extra == nil || cfg.Extra.Hostname == "" {
		return nil
	}
	if v := was[authorityKey]; len(v) == 1 && v[0] == cfg.Extra.Hostname {
		return was
	}
	return metadata.MD{authorityKey: {cfg.Extra.Hostname}}
}

// viewLabels returns the labels of attempts to endpoints of a locality, if package attemptlabels is
// linked.
func viewLabels(l *locality) map[string]string {
	if metric.UpdateLabels == nil {
		return nil
	}
	return map[string]string{"grpc.lb.locality": channelmetrics.LocalityName(l.id), "grpc.lb.backend_service": l.leaf.name}
}
