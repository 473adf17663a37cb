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
// absent is the number of clusters that have not been received, which may be leaves.
//
// Each cluster is visited once: O(clusters and edges), however many paths there are. The walk ends when
// it has found more than a number of leaves and absent clusters.
func flatten(root string, most int, lookup func(name string) *entry) (leaves []string, absent int, r readiness, err error) {
	if c, ok := lookup(root).value.(*resource.Cluster); ok && c.Kind != resource.ClusterAggregate {
		return []string{root}, 0, ready, nil // no need to walk
	}
	w := walk{most: most, lookup: lookup, seen: map[string]*entry{}, readiness: ready}
	w.visit(root, nil, 1)
	switch {
	case w.tooDeep:
		return nil, 0, ready, fmt.Errorf("xdslb: aggregate cluster graph of cluster %q exceeds max depth (%d)", root, maxDepth)
	case len(w.leaves) > 0 || w.readiness == waiting:
		return w.leaves, w.absent, w.readiness, nil
	case w.missing != nil:
		return nil, w.absent, w.readiness, w.missing
	}
	return nil, w.absent, w.readiness, fmt.Errorf("xdslb: aggregate cluster graph of cluster %q has no leaf clusters", root)
}

type walk struct {
	most      int
	lookup    func(name string) *entry
	seen      map[string]*entry // nil for those that are too deep
	leaves    []string
	absent    int
	readiness readiness
	missing   error // the reason why the first missing cluster is missing
	tooDeep   bool
}

// visit visits a cluster that a resource of an origin names.
func (w *walk) visit(name string, by source, depth int) {
	if e, ok := w.seen[name]; ok {
		if e != nil {
			w.readiness = min(w.readiness, e.readinessLocked(by))
		}
		return
	}
	w.seen[name] = nil
	if depth > maxDepth {
		w.tooDeep = true
		return
	}
	e := w.lookup(name)
	w.seen[name] = e
	w.readiness = min(w.readiness, e.readinessLocked(by))
	c, _ := e.value.(*resource.Cluster)
	switch {
	case c == nil:
		w.absent++
		if w.missing == nil {
			w.missing = e.err
		}
	case c.Kind == resource.ClusterAggregate:
		for _, child := range c.Children {
			if len(w.leaves)+w.absent > w.most {
				return
			}
			w.visit(child, e.originLocked(), depth+1)
		}
	default:
		w.leaves = append(w.leaves, name)
	}
}
