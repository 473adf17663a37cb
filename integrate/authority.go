// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"
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
}

const authorityKey = ":authority"

func authorityOf(res balancer.PickResult) string {
	if v := res.Metadata[authorityKey]; len(v) == 1 {
		return v[0]
	}
	return ""
}
