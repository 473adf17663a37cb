// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"cmp"
	"slices"
	"sync"
)

// registered contains the links of resolvers that are not closed, by target, and the number of
// searches for channels of a target: see search.
var registered = struct {
	sync.Mutex
	byTarget map[string][]*Link
	searches map[string]int
}{byTarget: map[string][]*Link{}, searches: map[string]int{}}

// All returns all links, in the order in which they were created.
func All() (all []*Link) {
	registered.Lock()
	defer registered.Unlock()
	for _, links := range registered.byTarget {
		all = append(all, links...)
	}
	slices.SortFunc(all, func(a, b *Link) int { return cmp.Compare(a.id, b.id) })
	return all
}

// To returns the links of a target in the form of grpc.ClientConn.CanonicalTarget, in the order in
// which they were registered. Its cost does not depend on other targets.
func To(target string) []*Link {
	registered.Lock()
	defer registered.Unlock()
	return slices.Clone(registered.byTarget[target])
}

// register adds the link.
func (l *Link) register() {
	registered.Lock()
	defer registered.Unlock()
	registered.byTarget[l.Canonical] = append(registered.byTarget[l.Canonical], l)
}

// unregister removes the link, if it is there.
func (l *Link) unregister() {
	registered.Lock()
	defer registered.Unlock()
	links := slices.DeleteFunc(registered.byTarget[l.Canonical], func(other *Link) bool { return other == l })
	if registered.byTarget[l.Canonical] = links; len(links) == 0 {
		delete(registered.byTarget, l.Canonical)
	}
}

// first returns the first link of a target for which ok returns true, or nil.
func first(target string, ok func(*Link) bool) *Link {
	registered.Lock()
	defer registered.Unlock()
	for _, l := range registered.byTarget[target] {
		if ok(l) {
			return l
		}
	}
	return nil
}

// isBypassed is a predicate for first.
func isBypassed(l *Link) bool { return l.Bypassed }
