// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package persistent provides immutable slices and lists whose versions share memory: making
// the next version costs only as much as the difference. For example, a snapshot holds 10,000
// clusters, of which most publications change a single one.
//
// A [Slice] holds pointers, has a fixed length, and is read while RPCs are picked. A [List]
// holds values, such as the endpoints of a locality, and its length may change. [SameSlice] and
// [SameMap] compare other slices and maps by identity.
package persistent

import "sync/atomic"

// Slice is one version of a slice of pointers. The zero Slice is empty. It is safe for
// concurrent reads, even while the next version is made. It must not be copied.
//
// Successive versions share their slots, which hold the items of the latest version. Each item
// records the version that introduced it. A reader of an older version therefore detects newer
// items, and finds the replaced ones in the steps from one version to the next:
//
//	slots:  [0] a, since 1    [1] c, since 3    [2] e, since 1
//
//	version 1 ── step: [1] was b ──► version 2 ── step: [1] was d ──► version 3
//
// An older version references the next one and not vice versa, so items that only old versions
// contain are garbage-collected together with these versions. The slots are copied after as
// many changes as there are items, which bounds the number of steps.
type Slice[T any] struct {
	slots   []atomic.Pointer[Item[T]]
	version uint64
	changes int // of slots since they were allocated
	next    atomic.Pointer[step[T]]
}

// Item is an element of a Slice. Value must not be changed after a Slice contains it.
type Item[T any] struct {
	since uint64
	Value T
}

// Change replaces the item at Index. The new Item must not be in any Slice yet.
type Change[T any] struct {
	Index int
	Item  *Item[T]
}

// step leads from a version to the next one.
type step[T any] struct {
	was []Change[T] // the items that the next version replaces
	to  *Slice[T]
}

// Len returns the number of items.
func (s *Slice[T]) Len() int { return len(s.slots) }

// At returns the value of an item: with a single load in the latest version, and in O(Len)
// steps in older versions.
func (s *Slice[T]) At(i int) *T { return &s.Item(i).Value }

// Latest is an inlinable At for the latest version. current is false if a later version has
// replaced the item.
func (s *Slice[T]) Latest(i int) (v *T, current bool) {
	it := s.slots[i].Load()
	return &it.Value, it.since <= s.version
}

// Item returns an item. It costs as much as At.
func (s *Slice[T]) Item(i int) *Item[T] {
	it := s.slots[i].Load()
	if it.since > s.version {
		it = s.older(i)
	}
	return it
}

// older returns the item that a later version replaced.
//
//go:noinline
func (s *Slice[T]) older(i int) *Item[T] {
	for {
		step := s.next.Load()
		for _, c := range step.was {
			if c.Index == i {
				return c.Item
			}
		}
		s = step.to
	}
}

// Set initializes the empty Slice s with items, which must be new or all belong to one other
// Slice.
func (s *Slice[T]) Set(items []*Item[T]) {
	s.slots = make([]atomic.Pointer[Item[T]], len(items))
	for i, it := range items {
		s.slots[i].Store(it)
		s.version = max(s.version, it.since)
	}
}

// Follow initializes the empty Slice s as the version after prev, with some items replaced,
// each at most once. O(changes) on average if prev is the latest version, otherwise O(Len).
func (s *Slice[T]) Follow(prev *Slice[T], changes []Change[T]) {
	total := prev.changes + len(changes)
	if total > prev.Len() {
		s.copyOf(prev, changes)
		return
	}
	was := make([]Change[T], len(changes))
	for i, c := range changes {
		was[i] = Change[T]{c.Index, prev.Item(c.Index)}
	}
	s.slots, s.version, s.changes = prev.slots, prev.version+1, total
	// Readers of prev must find the step before they find the new items.
	if !prev.next.CompareAndSwap(nil, &step[T]{was, s}) {
		s.changes = 0
		s.copyOf(prev, changes)
		return
	}
	for _, c := range changes {
		c.Item.since = s.version
		s.slots[c.Index].Store(c.Item)
	}
}

// copyOf initializes s with slots of its own.
func (s *Slice[T]) copyOf(prev *Slice[T], changes []Change[T]) {
	items := make([]*Item[T], prev.Len())
	for i := range items {
		items[i] = prev.Item(i)
	}
	for _, c := range changes {
		items[c.Index] = c.Item
	}
	s.version = 0
	s.Set(items)
}
