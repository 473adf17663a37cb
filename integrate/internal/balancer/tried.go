// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"math/rand/v2"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/picker"
)

// This file keeps attempts at an RPC from the endpoints that earlier ones were given, as
// Envoy's previous_hosts does. A pick is made as for any RPC. Only if it comes to an
// endpoint that was tried, which is rare among many, the RPC moves to another one.
//
// Envoy picks anew, host_selection_retry_max_attempts times, and takes what it gets then.
// Here another endpoint is found if one is READY, at the cost of a look at each endpoint.

// avoidTried moves an RPC from an endpoint that was tried to one that was not, if there is
// any that is READY.
func (s *published) avoidTried(tried *perrpc.Tried, res picker.Result) picker.Result {
	if res.Outcome != picker.Picked && res.Outcome != picker.PickedConnect {
		return res
	}
	c := s.cluster(res.Cluster)
	if c.hosts == nil || !tried.Has(c.subConn(res.Index)) {
		return res
	}
	if i := c.untried(tried, res.Index); i >= 0 {
		c.hosts.list[res.Index].e.MoveTo(&c.hosts.list[i].e.EndpointState)
		res.Index = i
	}
	return res
}

// untried draws an endpoint that was not tried, by weight, from the locality of another
// one if it has any. It returns -1 if there is none. O(endpoints); does not allocate.
func (c *clusterView) untried(tried *perrpc.Tried, other int32) int32 {
	drawn, total, near := int32(-1), uint64(0), false
	for i := range c.picks {
		h := &c.hosts.list[i]
		same := h.locality == c.hosts.list[other].locality
		if h.state != picker.Ready || h.cfg.Health == picker.Draining || near && !same || tried.Has(c.picks[i].sc) {
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

// maxRepicks is how often a child policy, which cannot be told what to avoid, is asked for
// another endpoint.
const maxRepicks = 10

// repick returns what the child of group g picked, unless that was tried and the child, or
// that of another group, has something that was not.
func (c *clusterView) repick(info balancer.PickInfo, tried *perrpc.Tried, g *group, result balancer.PickResult, h *childSubConn) (balancer.PickResult, *childSubConn) {
	if !tried.Has(result.SubConn) {
		return result, h
	}
	for _, other := range append([]*group{g}, c.groups...) {
		if other == nil {
			continue
		}
		for range maxRepicks {
			again, of, err := other.childPicker.Load().pick(info)
			if err != nil {
				break
			}
			if !tried.Has(again.SubConn) {
				giveUp(result)
				return again, of
			}
			giveUp(again)
		}
	}
	return result, h
}

// giveUp tells a child that its pick is not used.
func giveUp(r balancer.PickResult) {
	if r.Done != nil {
		r.Done(balancer.DoneInfo{})
	}
}
