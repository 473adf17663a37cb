// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"log/slog"
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// This file is what a channel says of policies that go by zones: in the log, and in its
// status.

// noteZonesLocked logs that clusters ask for zone-aware routing and do not get it, since
// the zones of the own fleet are not known. It looks at clusters that have changed, and
// says the same once.
func (b *lb) noteZonesLocked(cfg *picker.Config, changed []int) {
	for _, i := range changed {
		c, cc := b.list.all[i], cfg.Clusters[i]
		for i := range cc.Leaves {
			l := &cc.Leaves[i]
			if l.Policy.LoadAware != nil && l.Origin != nil && l.Origin.Locality == (picker.LocalityID{}) && !c.hadOrigin(l) {
				b.rec.write(slog.LevelWarn, "xdslb: a cluster asks for load-aware localities, and no locality is preferred as the own one, "+
					"since the node of the bootstrap has no locality", cc.Name)
			}
			if l.Policy.ZoneAware == nil || l.Origin == nil || l.Origin.Err == nil || c.hadOrigin(l) {
				continue
			}
			b.rec.write(slog.LevelWarn, "xdslb: a cluster asks for zone-aware routing, and is balanced as without it, since the zones of the own fleet are not known. "+
				"It takes the locality of the node in the bootstrap, and Config.LocalCluster, the name of the EDS resource with the fleet's endpoints", cc.Name,
				slog.String("error", l.Origin.Err.Error()))
		}
	}
}

// hadOrigin reports whether the cluster's configuration so far says of the leaf's origin
// what the next one does.
func (c *cluster) hadOrigin(next *picker.Leaf) bool {
	return c.cfg != nil && slices.ContainsFunc(c.cfg.Leaves, func(l picker.Leaf) bool {
		o := l.Origin
		return l.Name == next.Name && o != nil && (o == next.Origin || o.Err != nil && next.Origin.Err != nil && o.Err.Error() == next.Origin.Err.Error())
	})
}
