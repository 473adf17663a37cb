// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// Unsupported returns a phrase for each feature of a configuration that no channel supports
// (D15). rpc reports the features that a channel without interceptors lacks. O(clusters).
func Unsupported(cfg *picker.Config) []string {
	if cfg == nil {
		return nil
	}
	list, sessions := slices.Clone(cfg.Ignored), HasSessions(cfg)
	by := map[string][]string{} // clusters with the same feature
	for _, c := range cfg.Clusters {
		for i := range c.Leaves {
			for _, feature := range UnsupportedOf(&c.Leaves[i], sessions) {
				if name := c.Leaves[i].Name; !slices.Contains(by[feature], name) {
					by[feature] = append(by[feature], name)
				}
			}
		}
	}
	for feature, names := range by {
		if len(names) == 1 {
			list = append(list, fmt.Sprintf("%s of cluster %q", feature, names[0]))
		} else {
			list = append(list, fmt.Sprintf("%s of %d clusters", feature, len(names)))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// UnsupportedOf returns the unsupported features of a cluster. Session affinity has no effect on
// child policies.
func UnsupportedOf(l *picker.Leaf, sessions bool) []string {
	if k := l.Policy.Kind; sessions && (k == picker.PolicyCustom || k == picker.PolicyPickFirst) {
		return append(slices.Clip(l.Ignored), "session affinity with a policy that picks by itself")
	}
	return l.Ignored
}

// HasSessions reports whether the listener has session affinity, which routes may override.
func HasSessions(cfg *picker.Config) bool {
	return slices.ContainsFunc(cfg.Filters, func(f picker.Filter) bool {
		s, ok := f.Config.(*resource.Session)
		return ok && s.Cookie != "" && !f.Disabled
	})
}
