// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sync"
)

// All returns all links, in the order in which they were created.
func All() []*Link {
	return inOrder(func(yield func(*Link) bool) {
		links.Range(func(_, l any) bool { return yield(l.(*Link)) })
	})
}

// To returns the links of a target in the form of grpc.ClientConn.CanonicalTarget, in the order in
// which they were created. Its cost does not depend on other targets.
func To(target string) []*Link { return linksTo.all(target) }

func inOrder(all iter.Seq[*Link]) []*Link {
	return slices.SortedFunc(all, func(a, b *Link) int { return cmp.Compare(a.id, b.id) })
}

// linksByTarget has links by their targets.
type linksByTarget struct {
	mu    sync.Mutex
	links map[string]map[*Link]struct{}
}

func (m *linksByTarget) add(target string, l *Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.links == nil {
		m.links = map[string]map[*Link]struct{}{}
	}
	if m.links[target] == nil {
		m.links[target] = map[*Link]struct{}{}
	}
	m.links[target][l] = struct{}{}
}

// remove removes a link, if it is there.
func (m *linksByTarget) remove(target string, l *Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if delete(m.links[target], l); len(m.links[target]) == 0 {
		delete(m.links, target)
	}
}

// all returns the links of a target, in the order in which they were created.
func (m *linksByTarget) all(target string) []*Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	return inOrder(maps.Keys(m.links[target]))
}

// aside returns a link of the target whose resolver is another package's, or nil.
func (m *linksByTarget) aside(target string) *Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.links[target] {
		if l.Aside {
			return l
		}
	}
	return nil
}
