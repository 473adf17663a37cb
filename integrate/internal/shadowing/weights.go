// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package shadowing

import (
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/weights"
	"github.com/xdslb/xdslb/picker"
)

// maxWeighted is how many clusters a Comparer remembers as counted.
const maxWeighted = 4096

// noteWeights counts and logs clusters with endpoint weights that were not counted before. It
// examines the clusters that differ from the current configuration.
func (s *Comparer) noteWeights(cfg *picker.Config) {
	if s.ignoreWeights {
		return
	}
	var last []*picker.Cluster
	if now := s.state.Load(); now != nil && now.cfg != nil {
		last = now.cfg.Clusters
	}
	var names []string
	s.mu.Lock()
	target, metrics := s.target, s.metrics
	for i, c := range cfg.Clusters {
		if target == "" || i < len(last) && last[i] == c || s.weighted[c.Name] || len(s.weighted) >= maxWeighted || !weights.Matter(c) {
			continue
		}
		s.weighted[c.Name] = true
		s.found[Weights]++
		names = append(names, c.Name)
	}
	s.mu.Unlock()
	if names != nil {
		metrics.Count(metric.ShadowDifferences, int64(len(names)), target, string(Weights))
		weights.Note(s.log, names)
	}
}

// shifts returns the shifts of all clusters of the current configuration.
func (s *Comparer) shifts() (all []weights.Shift) {
	now := s.state.Load()
	if now == nil || now.cfg == nil || s.ignoreWeights {
		return nil
	}
	for _, c := range now.cfg.Clusters {
		all = append(all, weights.Shifts(c)...)
	}
	return all
}
