// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"

	"github.com/xdslb/xdslb/xds/resource"
)

// maxDepth is how many clusters may be on a path through aggregates, both ends
// included (A37, T-SEC-2).
const maxDepth = 16

// flatten returns the clusters with endpoints below a cluster, in order of priority; for most
// clusters that is the cluster itself. A cluster that is reached more than once keeps its first
// place, so a diamond is equivalent to a tree, and a cycle adds nothing (T-WATCH-5).
// Unavailable clusters are skipped (A74).
//
// r is the lowest readiness in the graph. If err is not nil, it is the reason why there are no
// leaves.
//
// Each cluster is visited once: O(clusters and edges), however many paths there are.
func flatten(root string, lookup func(name string) *entry) (leaves []string, r readiness, err error) {
	if c, ok := lookup(root).value.(*resource.Cluster); ok && c.Kind != resource.ClusterAggregate {
		return []string{root}, ready, nil // no need to walk
	}
	w := walk{lookup: lookup, seen: map[string]bool{}, readiness: ready}
	w.visit(root, 1)
	switch {
	case w.tooDeep:
		return nil, ready, fmt.Errorf("xdslb: aggregate cluster graph of cluster %q exceeds max depth (%d)", root, maxDepth)
	case len(w.leaves) > 0 || w.readiness == waiting:
		return w.leaves, w.readiness, nil
	case w.missing != nil:
		return nil, w.readiness, w.missing
	}
	return nil, w.readiness, fmt.Errorf("xdslb: aggregate cluster graph of cluster %q has no leaf clusters", root)
}

type walk struct {
	lookup    func(name string) *entry
	seen      map[string]bool
	leaves    []string
	readiness readiness
	missing   error // the reason why the first missing cluster is missing
	tooDeep   bool
}

func (w *walk) visit(name string, depth int) {
	if w.seen[name] {
		return
	}
	w.seen[name] = true
	if depth > maxDepth {
		w.tooDeep = true
		return
	}
	e := w.lookup(name)
	w.readiness = min(w.readiness, e.readinessLocked())
	c, _ := e.value.(*resource.Cluster)
	switch {
	case c == nil:
		if w.missing == nil {
			w.missing = e.err
		}
	case c.Kind == resource.ClusterAggregate:
		for _, child := range c.Children {
			w.visit(child, depth+1)
		}
	default:
		w.leaves = append(w.leaves, name)
	}
}
