// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"log/slog"
	"slices"

	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/internal/weights"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// This file has the notices about configurations that a channel logs.

// note logs and records that the latest configuration was applied. previous are the previous
// configurations of the clusters, nil for new ones, changed the indexes of changed clusters.
func (b *Balancer) note(previous []*picker.Cluster, changed []int, changes *eventlog.Changes) {
	b.noteWeights(b.cfg, changed)
	for _, i := range changed {
		b.rec.recordZones(previous[i], b.cfg.Clusters[i])
	}
	b.rec.recordIgnored(b.cfg, changed)
	b.rec.record(eventlog.Event{Kind: eventlog.ConfigurationApplied, Changes: changes}, nil)
}

// recordZones logs that a cluster requests zone-aware routing but does not get it, since the
// zones of the local cluster are unknown. was is the cluster's previous configuration, nil if
// there is none. It logs nothing if the line was logged for that configuration.
func (r *recorder) recordZones(was, is *picker.Cluster) {
	for i := range is.Leaves {
		l := &is.Leaves[i]
		if l.Origin == nil || hadOrigin(was, l) {
			continue
		}
		switch of := (stateKey{name: stateZones, cluster: is.Name}); {
		case l.Policy.ZoneAware == nil:
		case l.Origin.Err != nil:
			r.begin(of, msgNoZones, slog.String("error", l.Origin.Err.Error()))
		default:
			r.resolve(of, msgZones)
		}
	}
}

// hadOrigin reports whether a cluster's configuration has the same origin for a leaf as the
// next one.
func hadOrigin(was *picker.Cluster, next *picker.Leaf) bool {
	return was != nil && slices.ContainsFunc(was.Leaves, func(l picker.Leaf) bool {
		o := l.Origin
		return l.Name == next.Name && o != nil && (o == next.Origin || o.Err != nil && next.Origin.Err != nil && o.Err.Error() == next.Origin.Err.Error())
	})
}

// recordIgnored logs the unsupported features of a configuration that have not been logged yet.
// clusters holds the indexes of the changed clusters: O(clusters).
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

// noteWeights logs which of the changed clusters have endpoints of different weights.
func (ch *channel) noteWeights(cfg *picker.Config, changed []int) {
	if ch.standalone || ch.simulated {
		return
	}
	var names []string
	for _, i := range changed {
		if c := cfg.Clusters[i]; !weights.Noted(c.Name) && weights.Matter(c) {
			names = append(names, c.Name)
		}
	}
	weights.Note(ch.rec.log, names)
}
