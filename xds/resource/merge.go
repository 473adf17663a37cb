// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"iter"
	"maps"
	"slices"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// A Merger inserts the members of collections into the localities of an assignment. The zero
// value is ready to use.
type Merger struct {
	of      *Endpoints
	members []*Members

	// counts has the number of occurrences of each address, and twice the number of addresses
	// that occur more than once.
	counts map[addrKey]uint32
	twice  int

	// For endpoints excluded because of their health, left has the number of occurrences,
	// unhealthy has each once, as in Endpoints.Unhealthy, and turned has the changes since
	// unhealthy was computed.
	left      map[picker.Unhealthy]uint32
	unhealthy []picker.Unhealthy
	turned    []picker.Unhealthy

	value   *Endpoints
	omitted int // endpoints
}

// Merge returns of with the members in place of its collections. members is parallel to
// of.Collections; nil is an empty collection. Unchanged parts are shared with the previous
// result, down to the lists of endpoints.
//
// An address that occurs more than once makes an assignment invalid, but not a collection,
// whose members are added and removed one by one. The first endpoint with the address is used,
// in the order of localities and then of names; omitted is the number of further ones, which
// are excluded.
//
// It costs O(localities + changes), and a copy of the list of unhealthy endpoints if that
// changes. It costs O(endpoints) if of has changed, if an address occurs twice, or if there are
// too many changes for the log.
func (m *Merger) Merge(of *Endpoints, members []*Members) (e *Endpoints, omitted int) {
	members = slices.Clone(members)
	for i, list := range members {
		if list == nil {
			members[i] = &none
		}
	}
	if of == m.of && slices.Equal(members, m.members) {
		return m.value, m.omitted
	}
	if of != m.of || len(members) != len(m.members) {
		m.recount(of, members)
	} else {
		for i, list := range members {
			m.follow(m.members[i], list)
		}
	}
	m.of, m.members = of, members
	m.assemble()
	return m.value, m.omitted
}

var none Members

// recount counts all addresses.
func (m *Merger) recount(of *Endpoints, members []*Members) {
	m.counts, m.twice = make(map[addrKey]uint32), 0
	m.left, m.unhealthy, m.turned = make(map[picker.Unhealthy]uint32), nil, nil
	for _, u := range of.Unhealthy {
		m.countUnhealthy(u, false)
	}
	for p := range of.Priorities {
		for i := range of.Priorities[p].Localities {
			m.countEndpoints(of.Priorities[p].Localities[i].Endpoints, false)
		}
	}
	for _, list := range members {
		m.countAll(list, false)
	}
}

// follow counts the differences between two versions of a collection.
func (m *Merger) follow(before, after *Members) {
	if before == after {
		return
	}
	changes, ok := after.since(before)
	if !ok {
		m.countAll(before, true)
		m.countAll(after, false)
	}
	for _, c := range changes {
		if c.unhealthy.Health != "" {
			m.countUnhealthy(c.unhealthy, c.gone)
		} else {
			m.count(c.addr, c.gone)
		}
	}
}

func (m *Merger) countAll(list *Members, gone bool) {
	m.countEndpoints(list.Endpoints, gone)
	for _, u := range list.unhealthy.All() {
		m.countUnhealthy(*u, gone)
	}
}

// countUnhealthy counts an excluded endpoint.
func (m *Merger) countUnhealthy(u picker.Unhealthy, gone bool) {
	n := m.left[u]
	switch {
	case !gone:
		m.left[u] = n + 1
		if n > 0 {
			return
		}
	case n > 1:
		m.left[u] = n - 1
		return
	default:
		delete(m.left, u)
	}
	m.turned = append(m.turned, u)
}

// sortUnhealthy updates unhealthy from left.
func (m *Merger) sortUnhealthy() {
	switch n := len(m.turned); {
	case n == 0:
		return
	case n > fewPending:
		m.unhealthy = slices.SortedFunc(maps.Keys(m.left), compareUnhealthy)
	default:
		list := append(make([]picker.Unhealthy, 0, len(m.unhealthy)+n), m.unhealthy...)
		for _, u := range m.turned {
			i, found := slices.BinarySearchFunc(list, u, compareUnhealthy)
			if _, there := m.left[u]; there && !found {
				list = slices.Insert(list, i, u)
			} else if found && !there {
				list = slices.Delete(list, i, i+1)
			}
		}
		m.unhealthy = list
	}
	m.turned = nil
}

func (m *Merger) countEndpoints(list picker.EndpointList, gone bool) {
	for _, e := range list.All() {
		for a := range addrsOf(e) {
			m.count(a, gone)
		}
	}
}

func (m *Merger) count(a addrKey, gone bool) {
	n := m.counts[a]
	switch {
	case !gone:
		m.counts[a] = n + 1
		if n == 1 {
			m.twice++
		}
	case n == 1:
		delete(m.counts, a)
	default:
		m.counts[a] = n - 1
		if n == 2 {
			m.twice--
		}
	}
}

// assemble computes the value.
func (m *Merger) assemble() {
	m.sortUnhealthy()
	next := *m.of
	next.Collections, next.metadata, next.Unhealthy = nil, nil, m.unhealthy
	next.Priorities = slices.Clone(m.of.Priorities)
	fresh := make([]bool, len(next.Priorities)) // the localities are a copy
	for i := range m.of.Collections {
		c := &m.of.Collections[i]
		p := &next.Priorities[c.Priority]
		if !fresh[c.Priority] {
			p.Localities, fresh[c.Priority] = slices.Clone(p.Localities), true
		}
		p.Localities[c.Locality].Endpoints = m.members[i].Endpoints
	}
	partial := m.omitted > 0
	m.omitted = 0
	if m.twice > 0 {
		m.omit(&next, fresh)
	}
	m.value = m.shared(&next, partial || m.omitted > 0)
}

// omit removes the endpoints with an address that occurred before.
func (m *Merger) omit(e *Endpoints, fresh []bool) {
	seen := make(map[addrKey]bool, len(m.counts))
	for p := range e.Priorities {
		for i := range e.Priorities[p].Localities {
			list := e.Priorities[p].Localities[i].Endpoints
			var kept persistent.Builder[picker.Endpoint]
			kept.Follow(list)
			before := m.omitted
			for _, endpoint := range list.All() {
				if m.seenBefore(endpoint, seen) {
					m.omitted++
				} else {
					kept.Add(*endpoint)
				}
			}
			if m.omitted == before {
				continue
			}
			if !fresh[p] {
				e.Priorities[p].Localities, fresh[p] = slices.Clone(e.Priorities[p].Localities), true
			}
			e.Priorities[p].Localities[i].Endpoints = kept.List()
		}
	}
}

// seenBefore reports whether an address of e is in seen, and adds its addresses if not.
func (m *Merger) seenBefore(e *picker.Endpoint, seen map[addrKey]bool) bool {
	for a := range addrsOf(e) {
		if seen[a] {
			return true
		}
	}
	for a := range addrsOf(e) {
		seen[a] = true
	}
	return false
}

// shared returns next with the unchanged parts replaced by those of the previous value. With
// partial, lists may be equal without being the same.
func (m *Merger) shared(next *Endpoints, partial bool) *Endpoints {
	if m.value == nil {
		return next
	}
	same := len(next.Priorities) == len(m.value.Priorities)
	for p := range next.Priorities {
		if p >= len(m.value.Priorities) {
			break
		}
		list, before := next.Priorities[p].Localities, m.value.Priorities[p].Localities
		if partial {
			for i := range list {
				if i < len(before) && persistent.Equal(list[i].Endpoints, before[i].Endpoints) {
					list[i].Endpoints = before[i].Endpoints
				}
			}
		}
		if slices.EqualFunc(list, before, picker.Locality.Same) {
			next.Priorities[p].Localities = before
		} else {
			same = false
		}
	}
	switch before := m.value.Unhealthy; {
	case persistent.SameSlice(next.Unhealthy, before):
	case slices.Equal(next.Unhealthy, before):
		next.Unhealthy, m.unhealthy = before, before
	default:
		same = false
	}
	if same && next.Name == m.value.Name && slices.Equal(next.Drops, m.value.Drops) {
		return m.value
	}
	return next
}

// addrsOf returns an iterator over the addresses of an endpoint.
func addrsOf(e *picker.Endpoint) iter.Seq[addrKey] {
	return func(yield func(addrKey) bool) {
		if !yield(keyOf(e.Addr)) {
			return
		}
		for _, a := range moreAddrs(e) {
			if !yield(keyOf(a)) {
				return
			}
		}
	}
}
