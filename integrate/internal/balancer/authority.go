// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/picker"
)

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
