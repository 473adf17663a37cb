// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// members are the endpoints of an assignment whose localities have theirs in collections
// (LEDS): they come and go one by one, and localities stay without. They go through what
// the XdsClient has for them.
type members struct {
	hollow  bool // the assignment begins with a priority without localities
	of      *resource.Endpoints
	lists   []*resource.MemberList // by locality, and so is what follows
	has     []map[string]resource.Member
	merger  resource.Merger
	omitted int // endpoints in the latest, for their address is another's
}

// newMembers is an assignment with a collection for each locality that there may be.
func newMembers(hollow bool) *members {
	m := &members{hollow: hollow, of: &resource.Endpoints{Name: "collected"}}
	if hollow {
		m.of.Priorities = append(m.of.Priorities, picker.Priority{})
	}
	for range prioritiesPerLeaf {
		var p picker.Priority
		for zone := range zones {
			m.of.Collections = append(m.of.Collections, resource.Collection{
				Name: fmt.Sprint(len(m.lists)), Priority: len(m.of.Priorities), Locality: zone, Index: len(m.lists),
			})
			p.Localities = append(p.Localities, localityIn(zone))
			m.lists, m.has = append(m.lists, &resource.MemberList{}), append(m.has, map[string]resource.Member{})
		}
		m.of.Priorities = append(m.of.Priorities, p)
	}
	return m
}

// localityIn is that of a zone, without endpoints.
func localityIn(zone int) picker.Locality {
	return picker.Locality{ID: picker.LocalityID{Zone: strconv.Itoa(zone)}, Weight: uint32(1 + zone)}
}

// render brings the collections in line with the leaf, and returns the priorities that they
// make.
func (m *members) render(l *planeLeaf) []picker.Priority {
	lists := make([]*resource.Members, len(m.lists))
	for i, list := range m.lists {
		wanted := l.membersAt(i/zones, i%zones)
		for _, name := range slices.Sorted(maps.Keys(m.has[i])) {
			if _, ok := wanted[name]; !ok {
				list.Remove(name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			if was, ok := m.has[i][name]; ok && reflect.DeepEqual(was, wanted[name]) {
				continue
			}
			if err := list.Set(name, wanted[name]); err != nil {
				panic(err)
			}
		}
		m.has[i], lists[i] = wanted, list.Commit()
	}
	value, omitted := m.merger.Merge(m.of, lists)
	want, left := m.naive()
	if !samePriorities(value.Priorities, want) || omitted != left {
		panic(fmt.Sprintf("the members of %s are merged to %+v, with %d left out; want %+v, %d", l.name, value.Priorities, omitted, want, left))
	}
	m.omitted = omitted
	return value.Priorities
}

// membersAt returns the members of the collection of a locality. What has the address of
// another comes before it, by its name.
func (l *planeLeaf) membersAt(priority, zone int) map[string]resource.Member {
	all := map[string]resource.Member{}
	for n := range endpointsPerLeaf {
		if at, ok := l.spots[n]; ok && at.priority == priority && at.zone == zone {
			all[fmt.Sprint("e", n)] = resource.Member{Endpoint: l.endpoint(n, at), Usable: true}
		}
		if at, ok := l.twins[n]; ok && at.priority == priority && at.zone == zone {
			e := l.endpoint(n, at)
			if multiAddressed(&e) { // one of its addresses is enough
				e.Addr, e.Extra = e.Extra.Addrs[0], nil
			}
			all[fmt.Sprint("a", n)] = resource.Member{Endpoint: e, Usable: true}
		}
	}
	return all
}

// naive is Merge without a past: of endpoints that share an address, the first in the order
// of localities and names counts.
func (m *members) naive() (priorities []picker.Priority, omitted int) {
	seen := map[string]bool{}
	if m.hollow {
		priorities = append(priorities, picker.Priority{})
	}
	for i, has := range m.has {
		if i%zones == 0 {
			priorities = append(priorities, picker.Priority{})
		}
		loc := localityIn(i % zones)
		var list []picker.Endpoint
		for _, name := range slices.Sorted(maps.Keys(has)) {
			e := has[name].Endpoint
			addrs := []string{e.Addr.String()}
			if multiAddressed(&e) {
				addrs = append(addrs, e.Extra.Addrs[0].String())
			}
			if slices.ContainsFunc(addrs, func(a string) bool { return seen[a] }) {
				omitted++
				continue
			}
			for _, a := range addrs {
				seen[a] = true
			}
			list = append(list, e)
		}
		loc.Endpoints = picker.ListOf(list...)
		p := &priorities[len(priorities)-1]
		p.Localities = append(p.Localities, loc)
	}
	return priorities, omitted
}

// samePriorities compares what two say. A list without endpoints is like none.
func samePriorities(a, b []picker.Priority) bool {
	return slices.EqualFunc(a, b, func(p, q picker.Priority) bool {
		return slices.EqualFunc(p.Localities, q.Localities, func(x, y picker.Locality) bool {
			return x.ID == y.ID && x.Weight == y.Weight && slices.EqualFunc(x.Endpoints.Slice(), y.Endpoints.Slice(), func(e, f picker.Endpoint) bool {
				return reflect.DeepEqual(e, f)
			})
		})
	})
}

// collect has the endpoints in collections from now on, or not any more.
func (l *planeLeaf) collect() {
	if l.members == nil {
		l.members = newMembers(l.hollow)
	} else {
		l.members = nil
	}
}

// twin adds or removes a member with an address of endpoint n. It is there for collections
// only: an assignment has no address twice.
func (l *planeLeaf) twin(rng *rand.Rand, n int) {
	if _, ok := l.twins[n]; ok {
		delete(l.twins, n)
		return
	}
	l.twins[n] = spot{priority: rng.IntN(prioritiesPerLeaf), zone: rng.IntN(zones), weight: uint32(1 + rng.IntN(2)), draining: rng.IntN(4) == 0}
}
