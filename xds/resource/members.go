// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// Members are the usable members of a collection at one time, in the order of their names.
// They are immutable.
type Members struct {
	Endpoints []picker.Endpoint
	of        *MemberList
	version   uint64
}

// A MemberList is a collection that changes member by member:
//
//	Set, Remove: what is to change ──Commit──► the next Members
//
// The zero value is an empty collection. It must not be copied, and is for one goroutine at
// a time, as is a Merger of its Members. It holds 16 bytes for each usable member besides
// the name and the Members, and 24 for each of the latest changes of addresses.
type MemberList struct {
	latest  *Members
	names   []string                    // parallel to latest.Endpoints, sorted
	weight  uint64                      // sum over what is pending, too
	pending map[string]*picker.Endpoint // nil is gone

	// log has what became of addresses since the version logFrom: Merger needs no more.
	log     []addrChange
	logFrom uint64
}

// addrChange says that an address has come or gone with a version.
type addrChange struct {
	addr    addrKey
	gone    bool
	version uint64
}

// maxLog is how many changes of addresses a MemberList remembers at least, and fewPending
// up to how many members are put into a copy of the list one by one.
const (
	maxLog     = 64
	fewPending = 16
)

// Set makes e the endpoint of a member with the next Commit. It is an error if the weights
// add up to more than fits (T-EDS-3); then the member stays as it is.
func (l *MemberList) Set(name string, e picker.Endpoint) error {
	before := l.endpoint(name)
	sum := l.weight + uint64(e.Weight)
	if before != nil {
		sum -= uint64(before.Weight)
	}
	if sum > math.MaxUint32 {
		var p problems
		p.root().dot("load_balancing_weight").refuse(e.Weight, fmt.Sprintf("must be at most %d, for the weights of the collection must have a sum of at most 4294967295", math.MaxUint32-(sum-uint64(e.Weight))))
		return p.err(LbEndpointType, name)
	}
	if before != nil && sameEndpoint(before, &e) {
		return nil // and what is shared stays so
	}
	l.weight = sum
	l.put(name, &e)
	return nil
}

// Remove takes a member away with the next Commit, if it is there.
func (l *MemberList) Remove(name string) {
	if before := l.endpoint(name); before != nil {
		l.weight -= uint64(before.Weight)
		l.put(name, nil)
	}
}

// Clear takes all members away with the next Commit. O(members).
func (l *MemberList) Clear() {
	l.weight = 0
	l.pending = make(map[string]*picker.Endpoint, len(l.names))
	for _, name := range l.names {
		l.pending[name] = nil
	}
}

func (l *MemberList) put(name string, e *picker.Endpoint) {
	if l.pending == nil {
		l.pending = make(map[string]*picker.Endpoint)
	}
	l.pending[name] = e
}

// endpoint returns a member as it is after the next Commit, or nil.
func (l *MemberList) endpoint(name string) *picker.Endpoint {
	if e, ok := l.pending[name]; ok {
		return e
	}
	if i, ok := slices.BinarySearch(l.names, name); ok {
		return &l.latest.Endpoints[i]
	}
	return nil
}

// Commit returns the members, the same as before if nothing has changed. It costs
// O(changes log members) and a copy of the slice.
func (l *MemberList) Commit() *Members {
	if l.latest == nil {
		l.latest = &Members{of: l}
	}
	prev := l.latest
	next := &Members{of: l, version: prev.version + 1}
	changes := slices.Sorted(maps.Keys(l.pending))
	changed := false
	for _, name := range changes {
		changed = l.note(name, next.version) || changed
	}
	if changed && len(changes) <= fewPending {
		l.patch(next, changes)
	} else if changed {
		l.merge(next, changes)
	}
	l.pending = nil
	if !changed {
		return prev
	}
	l.latest = next
	return next
}

// note logs what a change does to the addresses. It returns false for no change.
func (l *MemberList) note(name string, version uint64) bool {
	next := l.pending[name]
	var before *picker.Endpoint
	if i, ok := slices.BinarySearch(l.names, name); ok {
		before = &l.latest.Endpoints[i]
	}
	switch {
	case before == next: // both nil: it came and went
		return false
	case before != nil && next != nil && sameEndpoint(before, next):
		return false // it went and came, or changed back
	case before != nil && next != nil && sameAddrs(before, next):
		return true
	}
	l.remember(before, true, version)
	l.remember(next, false, version)
	return true
}

// remember logs the addresses of e, which may be nil.
func (l *MemberList) remember(e *picker.Endpoint, gone bool, version uint64) {
	if e == nil {
		return
	}
	if len(l.log) >= 2*maxLog {
		l.logFrom = l.log[maxLog-1].version
		l.log = append(l.log[:0], l.log[maxLog:]...)
	}
	for a := range addrsOf(e) {
		l.log = append(l.log, addrChange{a, gone, version})
	}
}

// patch makes next of the latest members, a few names apart.
func (l *MemberList) patch(next *Members, changes []string) {
	list := make([]picker.Endpoint, len(l.names), len(l.names)+len(changes))
	copy(list, l.latest.Endpoints)
	for _, name := range changes {
		e := l.pending[name]
		i, found := slices.BinarySearch(l.names, name)
		switch {
		case found && e != nil:
			list[i] = *e
		case found:
			list, l.names = slices.Delete(list, i, i+1), slices.Delete(l.names, i, i+1)
		case e != nil:
			list, l.names = slices.Insert(list, i, *e), slices.Insert(l.names, i, name)
		}
	}
	next.Endpoints = list
}

// merge is patch for many names, in O(members).
func (l *MemberList) merge(next *Members, changes []string) {
	names := make([]string, 0, len(l.names)+len(changes))
	list := make([]picker.Endpoint, 0, len(l.names)+len(changes))
	i := 0
	for _, name := range append(changes, "") {
		for ; i < len(l.names) && (name == "" || l.names[i] < name); i++ {
			names, list = append(names, l.names[i]), append(list, l.latest.Endpoints[i])
		}
		if i < len(l.names) && l.names[i] == name {
			i++
		}
		if e := l.pending[name]; e != nil {
			names, list = append(names, name), append(list, *e)
		}
	}
	l.names, next.Endpoints = names, slices.Clip(list)
}

// since returns what became of addresses from one version of a collection to the next, and
// false if that is not known any more.
func (m *Members) since(before *Members) ([]addrChange, bool) {
	if m.of == nil || before.of != m.of || before.version < m.of.logFrom || m.version < before.version {
		return nil, false
	}
	byVersion := func(c addrChange, v uint64) int { return cmp.Compare(c.version, v) }
	from, _ := slices.BinarySearchFunc(m.of.log, before.version+1, byVersion)
	to, _ := slices.BinarySearchFunc(m.of.log, m.version+1, byVersion)
	return m.of.log[from:to], true
}
