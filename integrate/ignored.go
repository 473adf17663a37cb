// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"slices"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// This file says what resources ask for and no channel does (D15). What a channel does not do
// because it lacks interceptors is perrpc's to say.

// ignored returns what a configuration asks for and nobody does, for people: a phrase each.
// O(clusters).
func ignored(cfg *picker.Config) []string {
	if cfg == nil {
		return nil
	}
	list, sessions := slices.Clone(cfg.Ignored), hasSessions(cfg)
	by := map[string][]string{} // clusters that ask for the same
	for _, c := range cfg.Clusters {
		for i := range c.Leaves {
			for _, what := range ignoredOf(&c.Leaves[i], sessions) {
				if name := c.Leaves[i].Name; !slices.Contains(by[what], name) {
					by[what] = append(by[what], name)
				}
			}
		}
	}
	for what, names := range by {
		if len(names) == 1 {
			list = append(list, fmt.Sprintf("%s of cluster %q", what, names[0]))
		} else {
			list = append(list, fmt.Sprintf("%s of %d clusters", what, len(names)))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// ignoredOf is what a cluster asks for in vain. Child policies pick by themselves.
func ignoredOf(l *picker.Leaf, sessions bool) []string {
	if k := l.Policy.Kind; sessions && (k == picker.PolicyCustom || k == picker.PolicyPickFirst) {
		return append(slices.Clip(l.Ignored), "session affinity with a policy that picks by itself")
	}
	return l.Ignored
}

// hasSessions reports whether there is session affinity, unless routes turn it on or off.
func hasSessions(cfg *picker.Config) bool {
	return slices.ContainsFunc(cfg.Filters, func(f picker.Filter) bool {
		s, ok := f.Config.(*resource.Session)
		return ok && s.Cookie != "" && !f.Disabled
	})
}

// noteIgnoredLocked logs what a configuration asks for in vain and the log does not have yet.
// The clusters are those that have changed, by index. It costs a look at each of them.
func (b *lb) noteIgnoredLocked(cfg *picker.Config, clusters []int) {
	b.rec.recordUnsupported("", cfg.Ignored)
	sessions := hasSessions(cfg)
	for _, i := range clusters {
		for k := range cfg.Clusters[i].Leaves {
			l := &cfg.Clusters[i].Leaves[k]
			b.rec.recordUnsupported(l.Name, ignoredOf(l, sessions))
		}
	}
}
