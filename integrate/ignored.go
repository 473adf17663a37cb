// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/picker"
)

// recordIgnored logs the unsupported features of a configuration that the log does not have
// yet. The clusters are the indexes of those that have changed: O(clusters).
func (r *recorder) recordIgnored(cfg *picker.Config, clusters []int) {
	r.recordUnsupported("", cfg.Ignored)
	sessions := explain.HasSessions(cfg)
	for _, i := range clusters {
		for k := range cfg.Clusters[i].Leaves {
			l := &cfg.Clusters[i].Leaves[k]
			r.recordUnsupported(l.Name, explain.UnsupportedOf(l, sessions))
		}
	}
}
