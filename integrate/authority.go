// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/picker"
)

// rewriteAuthorities says whether a route rewrites authorities (A81). Other
// targets do nothing for it.
func (b *lb) rewriteAuthorities(on bool) {
	if on == b.rewrites {
		return
	}
	b.rewrites = on
	for _, c := range b.clusters {
		c.dirty = true
	}
}

// rename fills in what picks by routes that rewrite authorities return: those of
// endpoints with a hostname tell gRPC to make it the RPC's :authority. gRPC has
// the channel's credentials check that, and lets grpc.CallAuthority take
// precedence. O(endpoints).
func (c *cluster) rename(p *priority) {
	old := c.renamed
	c.view.renamed = make([]balancer.PickResult, 0, len(p.results))
	for _, l := range p.localities {
		for i := range l.endpoints {
			k := len(c.view.renamed)
			res := p.results[k]
			if extra := l.cfg[i].Extra; extra != nil && extra.Hostname != "" {
				if k < len(old) && authorityOf(old[k]) == extra.Hostname {
					res.Metadata = old[k].Metadata
				} else {
					res.Metadata = metadata.MD{authorityKey: {extra.Hostname}}
				}
			}
			c.view.renamed = append(c.view.renamed, res)
		}
	}
	c.renamed = c.view.renamed
	if p.delegates() {
		c.view.indexes = make(map[*endpoint]int32, len(p.results))
		for _, l := range p.localities {
			for _, e := range l.endpoints {
				c.view.indexes[e] = int32(len(c.view.indexes))
			}
		}
	}
}

// rewritten reports whether the RPC's route rewrites its authority.
func (s *published) rewritten(res picker.Result) bool {
	return s.rewrites && res.Route >= 0 && s.cfg.Routes[res.Route].AutoHostRewrite
}

// rename rewrites the authority of an RPC that a child has picked e for.
func (s *published) rename(r *balancer.PickResult, res picker.Result, e *endpoint) {
	c := &s.clusters[res.Cluster]
	if i, ok := c.indexes[e]; ok && s.rewritten(res) {
		r.Metadata = metadata.Join(r.Metadata, c.renamed[i].Metadata)
	}
}

const authorityKey = ":authority"

func authorityOf(res balancer.PickResult) string {
	if v := res.Metadata[authorityKey]; len(v) == 1 {
		return v[0]
	}
	return ""
}
