// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"slices"
	"strings"
)

// A pathIndex finds the routes whose path matcher, exact or prefix, matches an RPC's path. It
// is a radix tree of the matchers' values with at most two nodes for each value. A lookup costs
// one comparison for each branching point of the values, so a hundred methods of a service cost
// as much as three.
//
// Rejected: a hash of the whole path finds exact matches only; a binary search of the sorted
// values compares the common start of the paths ("/package.Service/") in each step.
//
// Nodes are in one slice, parents before children, and refer to each other by index.
type pathIndex struct {
	nodes []pathNode
	fold  bool // letters match case-insensitively; the values are in lower case
}

type pathNode struct {
	label    string  // the node's value without its parent's value
	next     []int32 // the child whose label starts with byte low+i, or 0
	low      byte
	up       int32   // the nearest ancestor with routes in prefix, or -1
	minRoute int32   // the least route in prefix, here or in an ancestor, or noRoute
	prefix   []int32 // routes with this value as prefix, ascending
	exact    []int32 // routes with this value as path, ascending
}

// A pathEntry is the path matcher of one route.
type pathEntry struct {
	value string
	exact bool
	route int32
}

// newPathIndex returns the index of entries, which it sorts. Entries with equal values must be
// in the order of their routes. O(n log n) comparisons.
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

	x := &pathIndex{fold: fold, nodes: []pathNode{{up: -1, minRoute: noRoute}}}
	runs := []pathRun{{entries, 0}}
	for i := 0; i < len(runs); i++ {
		children := x.split(int32(i), runs[i], int32(len(runs)))
		runs = append(runs, children...)
	}
	return x
}

// A pathRun has the sorted entries below a node. Their first at bytes are the value of the
// node's parent.
type pathRun struct {
	entries []pathEntry
	at      int
}

// split fills in a node, whose up and minRoute are still those of its parent, and adds its
// children, starting at index child. The label is the common prefix of all entries, which equals
// the common prefix of the first and last entry. Shorter values sort first.
func (x *pathIndex) split(node int32, r pathRun, child int32) (children []pathRun) {
	n, e := &x.nodes[node], r.entries
	end := r.at + commonPrefix(e[0].value[r.at:], e[len(e)-1].value[r.at:])
	n.label = e[0].value[r.at:end]
	for ; len(e) > 0 && len(e[0].value) == end; e = e[1:] {
		if e[0].exact {
			n.exact = append(n.exact, e[0].route)
		} else {
			n.prefix = append(n.prefix, e[0].route)
		}
	}
	up, minRoute := n.up, n.minRoute
	if n.prefix != nil {
		up, minRoute = node, min(minRoute, n.prefix[0])
		n.minRoute = minRoute
	}
	if len(e) == 0 {
		return nil
	}
	n.low = e[0].value[end]
	n.next = make([]int32, int(e[len(e)-1].value[end]-n.low)+1)
	next, low := n.next, n.low
	for len(e) > 0 {
		edge, k := e[0].value[end], 1
		for k < len(e) && e[k].value[end] == edge {
			k++
		}
		next[edge-low] = child + int32(len(children))
		children = append(children, pathRun{e[:k], end})
		x.nodes = append(x.nodes, pathNode{up: up, minRoute: minRoute}) // invalidates n
		e = e[k:]
	}
	return children
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// first returns the first of the routes that match path, or noRoute. O(len(path)).
func (x *pathIndex) first(path string) int32 {
	node, exact := x.find(path)
	best := int32(noRoute)
	if node >= 0 {
		best = x.nodes[node].minRoute
	}
	if len(exact) > 0 {
		best = min(best, exact[0])
	}
	return best
}

// find descends along path. It returns the node from which walking up visits all routes that
// match a prefix of path, longest first, and the routes for path itself. O(len(path)); does not
// allocate.
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
		k := int(c) - int(n.low)
		if uint(k) >= uint(len(n.next)) || n.next[k] == 0 {
			return node, nil
		}
		node = n.next[k]
	}
}

// equalFold reports whether a and b, which have the same length, are equal except for the case
// of ASCII letters. strings.EqualFold would equate more characters, such as the Kelvin sign and
// k. Lower-casing first would allocate for each RPC (T-RC-7).
func equalFold(a, b string) bool {
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && equalFold(s[:len(prefix)], prefix)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// lowerAll applies lower to each byte. Unlike strings.ToLower, it leaves all other bytes
// unchanged, even invalid UTF-8.
func lowerAll(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = lower(c)
	}
	return string(b)
}
