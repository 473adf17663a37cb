// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/picker"
)

// noteIgnoredLocked logs what a configuration asks for in vain and the log does not have yet.
// The clusters are those that have changed, by index. It costs a look at each of them.
func (b *lb) noteIgnoredLocked(cfg *picker.Config, clusters []int) {
	b.rec.recordUnsupported("", cfg.Ignored)
	sessions := explain.HasSessions(cfg)
	for _, i := range clusters {
		for k := range cfg.Clusters[i].Leaves {
			l := &cfg.Clusters[i].Leaves[k]
			b.rec.recordUnsupported(l.Name, explain.UnsupportedOf(l, sessions))
		}
	}
}
