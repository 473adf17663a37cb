// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/picker"
)

// rewriteAuthorities fills in what picks by routes that rewrite authorities return: those of
// endpoints with a hostname tell gRPC to make it the RPC's :authority. gRPC has
// the channel's credentials check that, and lets grpc.CallAuthority take
// precedence. O(endpoints).
func (c *cluster) rewriteAuthorities(p *priority) {
	old := c.authorityPicks
	c.view.authorityPicks = make([]balancer.PickResult, 0, len(p.picks))
	for _, l := range p.localities {
		for i := range l.endpoints {
			k := len(c.view.authorityPicks)
			res := p.picks[k].result()
			if extra := l.cfg.At(i).Extra; extra != nil && extra.Hostname != "" {
				if k < len(old) && authorityOf(old[k]) == extra.Hostname {
					res.Metadata = old[k].Metadata
				} else {
					res.Metadata = metadata.MD{authorityKey: {extra.Hostname}}
				}
			}
			c.view.authorityPicks = append(c.view.authorityPicks, res)
		}
	}
	c.authorityPicks = c.view.authorityPicks
	c.indexEndpoints(p)
}

// indexEndpoints fills in the indexes of endpoints that children pick. O(endpoints).
func (c *cluster) indexEndpoints(p *priority) {
	if !p.leaf.delegates() || c.view.indexes != nil {
		return
	}
	c.view.indexes = make(map[*endpoint]int32, len(p.picks))
	for e := range p.endpoints {
		c.view.indexes[e] = int32(len(c.view.indexes))
	}
}

// rewritten reports whether the RPC's route rewrites its authority.
func (s *published) rewritten(res picker.Result) bool {
	return s.rewrites && res.Route >= 0 && s.Config.Routes[res.Route].AutoHostRewrite
}

// rewriteAuthority rewrites the authority of an RPC that a child has picked e for.
func (s *published) rewriteAuthority(r *balancer.PickResult, res picker.Result, e *endpoint) {
	c := s.cluster(res.Cluster)
	if i, ok := c.indexes[e]; ok && s.rewritten(res) {
		r.Metadata = metadata.Join(r.Metadata, c.authorityPicks[i].Metadata)
	}
}

const authorityKey = ":authority"

func authorityOf(res balancer.PickResult) string {
	if v := res.Metadata[authorityKey]; len(v) == 1 {
		return v[0]
	}
	return ""
}
