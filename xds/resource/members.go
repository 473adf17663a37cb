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
	"github.com/xdslb/xdslb/picker/persistent"
)

// Members are the members of a collection at one time, in the order of their names. They are
// immutable.
type Members struct {
	Endpoints picker.EndpointList // of the usable members
	unhealthy persistent.List[picker.Unhealthy]
	of        *MemberList
	version   uint64
}

// A MemberList is a collection that is updated member by member:
//
//	Set, Remove: pending changes ──Commit──► the next Members
//
// The zero value is an empty collection. It must not be copied, and neither it nor a Merger of
// its Members is safe for concurrent use. It holds 16 bytes for each member in addition to the
// name and the Members, and 80 for each recent change of addresses.
type MemberList struct {
	latest    *Members
	usable    byName[picker.Endpoint]
	unhealthy byName[picker.Unhealthy]
	weight    uint64             // sum, including pending changes
	pending   map[string]*Member // nil for a removed member

	// log has the changes of addresses since version logFrom, as far as Merger needs them.
	log     []addrChange
	logFrom uint64
}

// addrChange is the addition or removal of an address in a version.
type addrChange struct {
	addr      addrKey
	unhealthy picker.Unhealthy // instead of addr, if the member is excluded
	gone      bool
	version   uint64
}

// maxLog is the minimum number of changes of addresses that a MemberList keeps, and fewPending
// the maximum number of members that are inserted into a copy of the list one by one.
const (
	maxLog     = 64
	fewPending = 16
)

// Set makes m the member with a name at the next Commit. It returns an error if the sum of the
// weights overflows (T-EDS-3); the member is then unchanged.
func (l *MemberList) Set(name string, m Member) error {
	before, after := l.endpoint(name), m.usable()
	sum := l.weight
	if before != nil {
		sum -= uint64(before.Weight)
	}
	if after != nil {
		sum += uint64(after.Weight)
	}
	if sum > math.MaxUint32 {
		var p problems
		p.root().dot("load_balancing_weight").refuse(after.Weight, fmt.Sprintf("must be at most %d: the sum of the collection's weights must be at most 4294967295", math.MaxUint32-(sum-uint64(after.Weight))))
		return p.err(LbEndpointType, name)
	}
	if before != nil && after != nil && sameEndpoint(before, after) {
		return nil // shared parts remain shared
	}
	l.weight = sum
	l.put(name, &m)
	return nil
}

// Remove removes a member at the next Commit, if it exists.
func (l *MemberList) Remove(name string) {
	if before := l.endpoint(name); before != nil {
		l.weight -= uint64(before.Weight)
	}
	l.put(name, nil)
}

// Clear removes all members at the next Commit. O(members).
func (l *MemberList) Clear() {
	l.weight = 0
	l.pending = make(map[string]*Member, len(l.usable.names)+len(l.unhealthy.names))
	for _, name := range l.usable.names {
		l.pending[name] = nil
	}
	for _, name := range l.unhealthy.names {
		l.pending[name] = nil
	}
}

func (l *MemberList) put(name string, m *Member) {
	if l.pending == nil {
		l.pending = make(map[string]*Member)
	}
	l.pending[name] = m
}

// endpoint returns the endpoint of a member after the next Commit, or nil if it is not usable.
func (l *MemberList) endpoint(name string) *picker.Endpoint {
	if m, ok := l.pending[name]; ok {
		return m.usable()
	}
	return l.usable.find(name)
}

// usable returns the endpoint of m, or nil if it is not usable. m may be nil.
func (m *Member) usable() *picker.Endpoint {
	if m == nil || !m.Usable {
		return nil
	}
	return &m.Endpoint
}

// excluded returns the diagnostics of m if it is excluded. m may be nil.
func (m *Member) excluded() *picker.Unhealthy {
	if m == nil || m.Usable || !m.Unhealthy.Addr.IsValid() {
		return nil
	}
	return &m.Unhealthy
}

// Commit returns the members. The result is the previous one if nothing has changed. Each
// change costs O(log members) and a copy of up to 85 members. Many changes cost O(members), and
// an addition or removal costs O(members) for the names.
func (l *MemberList) Commit() *Members {
	if l.latest == nil {
		l.latest = &Members{of: l}
	}
	version := l.latest.version + 1
	changes := slices.Sorted(maps.Keys(l.pending))
	usable, unhealthy := false, false
	for _, name := range changes {
		usable = l.noteEndpoint(name, version) || usable
		unhealthy = l.noteUnhealthy(name, version) || unhealthy
	}
	if usable {
		l.usable.apply(changes, func(name string) *picker.Endpoint { return l.pending[name].usable() })
	}
	if unhealthy {
		l.unhealthy.apply(changes, func(name string) *picker.Unhealthy { return l.pending[name].excluded() })
	}
	if usable || unhealthy {
		l.latest = &Members{of: l, version: version, Endpoints: l.usable.list, unhealthy: l.unhealthy.list}
	}
	l.pending = nil
	return l.latest
}

// noteEndpoint logs the effect of a change on the used addresses. It returns false if there is
// no change.
func (l *MemberList) noteEndpoint(name string, version uint64) bool {
	before, next := l.usable.find(name), l.pending[name].usable()
	switch {
	case before == next: // both nil: added and removed
		return false
	case before != nil && next != nil && sameEndpoint(before, next):
		return false // removed and added, or changed back
	case before != nil && next != nil && sameAddrs(before, next):
		return true
	}
	if before != nil {
		for a := range addrsOf(before) {
			l.remember(addrChange{addr: a, gone: true, version: version})
		}
	}
	if next != nil {
		for a := range addrsOf(next) {
			l.remember(addrChange{addr: a, version: version})
		}
	}
	return true
}

// noteUnhealthy is noteEndpoint for excluded members.
func (l *MemberList) noteUnhealthy(name string, version uint64) bool {
	before, next := l.unhealthy.find(name), l.pending[name].excluded()
	if before == next || before != nil && next != nil && *before == *next {
		return false
	}
	if before != nil {
		l.remember(addrChange{gone: true, unhealthy: *before, version: version})
	}
	if next != nil {
		l.remember(addrChange{unhealthy: *next, version: version})
	}
	return true
}

func (l *MemberList) remember(c addrChange) {
	if len(l.log) >= 2*maxLog {
		l.logFrom = l.log[maxLog-1].version
		l.log = append(l.log[:0], l.log[maxLog:]...)
	}
	l.log = append(l.log, c)
}

// byName is a list ordered by unique names.
type byName[T comparable] struct {
	names []string
	list  persistent.List[T]
}

// find returns the value with a name, or nil.
func (l *byName[T]) find(name string) *T {
	if i, ok := slices.BinarySearch(l.names, name); ok {
		return l.list.At(i)
	}
	return nil
}

// apply changes the values whose names are in changes, which is sorted. next returns the new
// value of a name, or nil to remove it.
func (l *byName[T]) apply(changes []string, next func(name string) *T) {
	if len(changes) <= fewPending {
		l.patch(changes, next)
	} else {
		l.merge(changes, next)
	}
}

// patch is apply for few names.
func (l *byName[T]) patch(changes []string, next func(name string) *T) {
	for _, name := range changes {
		i, found := slices.BinarySearch(l.names, name)
		switch e := next(name); {
		case found && e != nil:
			l.list = l.list.Replace(i, i+1, *e)
		case found:
			l.list, l.names = l.list.Replace(i, i+1), slices.Delete(l.names, i, i+1)
		case e != nil:
			l.list, l.names = l.list.Replace(i, i, *e), slices.Insert(l.names, i, name)
		}
	}
}

// merge is patch for many names, in O(list).
func (l *byName[T]) merge(changes []string, next func(name string) *T) {
	names := make([]string, 0, len(l.names)+len(changes))
	var list persistent.Builder[T]
	list.Follow(l.list)
	list.Grow(len(l.names) + len(changes))
	i := 0
	for _, name := range append(changes, "") {
		for ; i < len(l.names) && (name == "" || l.names[i] < name); i++ {
			names = append(names, l.names[i])
			list.Add(*l.list.At(i))
		}
		if i < len(l.names) && l.names[i] == name {
			i++
		}
		if e := next(name); e != nil {
			names = append(names, name)
			list.Add(*e)
		}
	}
	l.names, l.list = names, list.List()
}

// since returns the changes of addresses from one version of a collection to the next, and
// false if they are no longer in the log.
func (m *Members) since(before *Members) ([]addrChange, bool) {
	if m.of == nil || before.of != m.of || before.version < m.of.logFrom || m.version < before.version {
		return nil, false
	}
	byVersion := func(c addrChange, v uint64) int { return cmp.Compare(c.version, v) }
	from, _ := slices.BinarySearchFunc(m.of.log, before.version+1, byVersion)
	to, _ := slices.BinarySearchFunc(m.of.log, m.version+1, byVersion)
	return m.of.log[from:to], true
}
