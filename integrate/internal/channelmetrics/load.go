// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package channelmetrics

import (
	"fmt"

	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/picker"
)

// LocalityName returns the value of the label grpc.lb.locality for a locality, as in grpc-go.
func LocalityName(id picker.LocalityID) string {
	return fmt.Sprintf("{region=%q, zone=%q, sub_zone=%q}", id.Region, id.Zone, id.SubZone)
}

// FoldLoad folds the counters of a cluster. Without load reports a locality may have the
// counters of its sequence only. Counters of load reports are
// shared by channels.
func FoldLoad(to *metric.Channel, cfg *picker.Leaf, load *picker.ClusterLoad) {
	cluster, emit := cfg.Name, to.Count
	if cfg.Load.Server != "" {
		emit = to.CountShared
	}
	for id, l := range load.Localities() {
		metric.Fold(emit, metric.Picks, l, "", l.Snapshot().Issued, cluster, LocalityName(id))
	}
	for category, c := range load.Drops() {
		metric.Fold(emit, metric.Drops, c, "", c.Load(), cluster, category)
	}
	metric.Fold(emit, metric.BreakerRejections, load.Overload(), "", load.Overload().Load(), cluster)
}
