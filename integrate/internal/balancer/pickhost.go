// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"math/rand/v2"

	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
)

// This file picks the endpoint of a session (A55), and excludes endpoints that earlier attempts
// used, as Envoy's previous_hosts does. The pick itself is the same as for any RPC. Only if it
// returns a tried endpoint, which is rare among many, another endpoint is picked.
//
// Envoy picks again, host_selection_retry_max_attempts times, and then accepts any host. This
// implementation finds an untried endpoint if one is READY, at the cost of examining each
// endpoint.

// pickForSession picks the endpoint of an RPC's session if it is READY, or makes the RPC wait
// if the endpoint is connecting. Otherwise ok is false, and the RPC may go to any endpoint.
func (s *pickState) pickForSession(session *rpc.Session, route, cluster int32, r uint64) (res picker.Result, outside *host, ok bool) {
	c := s.cluster(cluster)
	h := c.hosts.find(session.Hosts)
	if h == nil {
		return res, nil, false
	}
	switch h.state {
	case picker.Ready:
		res = s.Snapshot.PickEndpoint(route, cluster, h.index, h.EndpointState, r)
		switch {
		case res.Outcome == picker.Picked && h.outside != nil:
			return res, h, true
		case res.Outcome == picker.Picked || res.Outcome == picker.Dropped || res.Outcome == picker.Overloaded:
			return res, nil, true
		}
	case picker.Connecting:
		return picker.Result{Outcome: picker.Queue, Route: route, Cluster: cluster}, nil, true
	case picker.Idle:
		if c.connectable != nil && h.cfg.Health != picker.Draining {
			return picker.Result{Outcome: picker.QueueConnect, Route: route, Cluster: cluster, Index: h.index}, nil, true
		}
	}
	return res, nil, false
}

// excludeTried replaces a tried endpoint by an untried one, if one is READY.
func (s *pickState) excludeTried(tried *rpc.Tried, res picker.Result, outside *host) (picker.Result, *host) {
	if res.Outcome != picker.Picked && res.Outcome != picker.PickedConnect {
		return res, outside
	}
	c := s.cluster(res.Cluster)
	if c.hosts == nil {
		return res, outside
	}
	from := outside
	if outside == nil {
		from = &c.hosts.list[res.Index]
	}
	if !tried.Has(c.destination(res.Index, outside).sc) {
		return res, outside
	}
	if i := c.drawUntried(tried, from.locality); i >= 0 {
		from.MoveTo(c.hosts.list[i].EndpointState)
		res.Index, outside = i, nil
	}
	return res, outside
}

// drawUntried draws an untried endpoint by weight, from the given locality if it has any. It
// returns -1 if there is no such endpoint. O(endpoints); does not allocate.
func (c *clusterView) drawUntried(tried *rpc.Tried, locality int32) int32 {
	drawn, total, near := int32(-1), uint64(0), false
	for i := range c.results {
		h := &c.hosts.list[i]
		same := h.locality == locality
		if h.state != picker.Ready || h.cfg.Health == picker.Draining || near && !same || tried.Has(c.results[i].sc) {
			continue
		}
		if same && !near {
			near, total = true, 0
		}
		weight := uint64(max(h.cfg.Weight, 1))
		if total += weight; rand.Uint64N(total) < weight {
			drawn = int32(i)
		}
	}
	return drawn
}
