// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/picker"
)

// hosts are a cluster's endpoints for RPCs of sessions (A55), as of one
// publication: those of the priority in use, by endpoint index. Targets without
// sessions have none.
type hosts struct {
	list []host
	// byAddr has the index of the endpoint with an address, if sessions may go to
	// endpoints of its health.
	byAddr map[netip.AddrPort]int32
}

type host struct {
	e     *endpoint
	cfg   *picker.Endpoint
	state picker.Connectivity
}

// findHosts returns the hosts of a priority: O(endpoints) after a change.
func findHosts(p *priority) *hosts {
	h := &hosts{byAddr: map[netip.AddrPort]int32{}}
	allowed := p.leaf.cfg.Override
	for _, l := range p.localities {
		for i, e := range l.endpoints {
			cfg, state := &l.cfg[i], e.Connectivity
			if e.Ejected {
				state = picker.TransientFailure // A50
			}
			index := int32(len(h.list))
			h.list = append(h.list, host{e, cfg, state})
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

// keepsSessions says whether RPCs may belong to sessions. Targets whose RPCs do not
// do nothing for it.
func (b *lb) keepsSessions(on bool) {
	if on == b.sessions {
		return
	}
	b.sessions = on
	for _, c := range b.clusters {
		c.dirty = true
	}
}

// pickForSession picks the endpoint that the RPC's session is with, if that is
// READY, and waits if it is about to be; else any other. Either way it notes where
// the RPC goes.
func (p *stablePicker) pickForSession(info balancer.PickInfo, s *published, call *rpc) (balancer.PickResult, error) {
	r := rand.Uint64()
	route, cluster := call.place(s, info, r)
	if cluster >= 0 {
		if found := s.clusters[cluster].hosts; found != nil {
			for _, addr := range call.session.hosts {
				i, ok := found.byAddr[addr]
				if !ok {
					continue
				}
				switch found.list[i].state {
				case picker.Ready:
					res := s.snapshot.Admit(cluster, r)
					res.Route = route
					if res.Outcome == picker.Picked {
						res.Index = i
						found.list[i].e.Begin()
						call.goes(s, res)
						return s.result(res), nil
					}
					if res.Outcome == picker.Dropped || res.Outcome == picker.Overloaded {
						return p.other(info, s, res, r)
					}
				case picker.Connecting:
					return p.wait(info, s, nil)
				case picker.Idle:
					if sleepers := s.clusters[cluster].sleepers; sleepers != nil && found.list[i].cfg.Health != picker.Draining {
						p.wake(sleepers[i])
						return p.wait(info, s, nil)
					}
				}
				break
			}
		}
	}
	res := call.pick(s, info, r)
	result, err := p.other(info, s, res, r)
	if err == nil && (res.Outcome == picker.Picked || res.Outcome == picker.PickedWake) {
		call.goes(s, res)
	}
	return result, err
}

// goes notes where the RPC goes.
func (c *rpc) goes(s *published, res picker.Result) {
	if h := s.clusters[res.Cluster].hosts; h != nil {
		c.session.went.Store(&place{s.cfg.Clusters[res.Cluster].Name, h.list[res.Index].cfg})
	}
}

// hasSessions reports whether a route's RPCs may belong to sessions.
func (p *plans) hasSessions() bool {
	return p != nil && slices.ContainsFunc(p.routes, func(r *routePlans) bool {
		if r == nil {
			return false
		}
		found := r.all.session
		for _, plan := range r.byCluster {
			found = found || plan.session
		}
		return found
	})
}
