// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"slices"
	"strings"
)

// A pathIndex finds the routes whose path matcher, exact or prefix, matches an
// RPC's path: a radix tree of the matchers' values, at most two nodes for each.
// Looking a path up costs one comparison for each place at which the values
// branch, so that a hundred methods of a service cost what three cost.
//
// A hash of the whole path would do for exact matches only. A binary search of
// the sorted values, whose predecessor of a path leads to all its prefixes, is as
// short, but compares the common start of the paths ("/package.Service/") at each
// of its steps.
//
// Nodes live in one slice, the children of a node next to each other, and refer
// to each other by index.
type pathIndex struct {
	nodes []pathNode
	fold  bool // letters match in either case; the values are in lower case
}

type pathNode struct {
	label    string  // what the node adds to its parent's value
	edges    string  // the first byte of each child's label, ascending
	children int32   // the first child
	up       int32   // the nearest ancestor with routes in prefix, or -1
	prefix   []int32 // routes with this value as prefix, ascending
	exact    []int32 // routes with this value as path, ascending
}

// A pathEntry is the path matcher of one route.
type pathEntry struct {
	value string
	exact bool
	route int32
}

// newPathIndex returns the index of entries, which it sorts. Entries with equal
// values must come in the order of their routes. O(n log n) comparisons.
func newPathIndex(entries []pathEntry, fold bool) *pathIndex {
	if len(entries) == 0 {
		return nil
	}
	if fold {
		for i := range entries {
			entries[i].value = lowerAll(entries[i].value)
		}
	}
	slices.SortStableFunc(entries, func(a, b pathEntry) int { return strings.Compare(a.value, b.value) })

	// A node covers a run of entries that share a start. The first at bytes of
	// it are its parent's, and its label goes as far as all of them agree, which
	// the first and the last decide.
	type run struct {
		entries []pathEntry
		at      int
	}
	x := &pathIndex{fold: fold, nodes: []pathNode{{up: -1}}}
	runs := []run{{entries: entries}}
	for i := 0; i < len(runs); i++ {
		r := runs[i]
		end := r.at + commonPrefix(r.entries[0].value[r.at:], r.entries[len(r.entries)-1].value[r.at:])
		n := pathNode{label: r.entries[0].value[r.at:end], up: x.nodes[i].up, children: int32(len(runs))}
		for len(r.entries) > 0 && len(r.entries[0].value) == end {
			if e := r.entries[0]; e.exact {
				n.exact = append(n.exact, e.route)
			} else {
				n.prefix = append(n.prefix, e.route)
			}
			r.entries = r.entries[1:]
		}
		up := n.up
		if n.prefix != nil {
			up = int32(i)
		}
		var edges []byte
		for len(r.entries) > 0 {
			edge, k := r.entries[0].value[end], 1
			for k < len(r.entries) && r.entries[k].value[end] == edge {
				k++
			}
			edges = append(edges, edge)
			runs = append(runs, run{r.entries[:k], end})
			x.nodes = append(x.nodes, pathNode{up: up})
			r.entries = r.entries[k:]
		}
		n.edges = string(edges)
		x.nodes[i] = n
	}
	return x
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// find descends along path. It returns the node to climb from for all routes
// that match a prefix of path, longest first, and the routes for path itself.
// O(len(path)); does not allocate.
func (x *pathIndex) find(path string) (node int32, exact []int32) {
	for at := 0; ; {
		n := &x.nodes[node]
		if x.fold {
			if !hasPrefixFold(path[at:], n.label) {
				return n.up, nil
			}
		} else if !strings.HasPrefix(path[at:], n.label) {
			return n.up, nil
		}
		at += len(n.label)
		if at == len(path) {
			return node, n.exact
		}
		c := path[at]
		if x.fold {
			c = lower(c)
		}
		next := strings.IndexByte(n.edges, c)
		if next < 0 {
			return node, nil
		}
		node = n.children + int32(next)
	}
}
