// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package versioned has slices that never change, of which the next version costs what
// differs from it. A snapshot of 10,000 clusters is one: most publications change one.
//
// A [Slice] is of pointers, has as many in each version, and is read while RPCs are picked. A
// [List] is of values, such as the endpoints of a locality, which come and go. For slices and
// maps of other kinds there are [SameSlice] and [SameMap].
package persistent

import "sync/atomic"

// Slice is one version of a slice of pointers. Any number of goroutines may read it,
// also while the next version is made. The zero Slice is empty. It must not be copied.
//
// Successive versions share their slots, which have the items of the latest one. An item
// knows with which version it came, so a reader of an older version sees that it is too
// new, and finds what was there before in the steps from one version to the next:
//
//	slots:  [0] a, since 1    [1] c, since 3    [2] e, since 1
//
//	version 1 ── step: [1] was b ──► version 2 ── step: [1] was d ──► version 3
//
// An older version leads to the next and not the other way round, so that what only old
// versions have is garbage together with them. The slots are copied after as many
// changes as there are items, which bounds the steps.
type Slice[T any] struct {
	slots   []atomic.Pointer[Item[T]]
	version uint64
	changes int // of slots since they were made
	next    atomic.Pointer[step[T]]
}

// Item is what a Slice has pointers to: a Value that is not to be changed once a Slice
// has it.
type Item[T any] struct {
	since uint64
	Value T
}

// Change is another item in a place. The item is in no Slice yet.
type Change[T any] struct {
	Index int
	Item  *Item[T]
}

// step leads from a version to the next.
type step[T any] struct {
	was []Change[T] // with the items that the next version has no more
	to  *Slice[T]
}

// Len returns how many items there are.
func (s *Slice[T]) Len() int { return len(s.slots) }

// At returns the value of an item: with one load in the latest version, and by O(Len)
// steps in older ones.
func (s *Slice[T]) At(i int) *T { return &s.Item(i).Value }

// Latest is At without a call, which the compiler inlines, unless a later version has
// another item there: then current is false.
func (s *Slice[T]) Latest(i int) (v *T, current bool) {
	it := s.slots[i].Load()
	return &it.Value, it.since <= s.version
}

// Item returns an item, as At does.
func (s *Slice[T]) Item(i int) *Item[T] {
	it := s.slots[i].Load()
	if it.since > s.version {
		it = s.older(i)
	}
	return it
}

// older returns the item that a later version has replaced.
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

// Set makes s, which is empty, a slice of items. They may be new, or those of one other
// Slice.
func (s *Slice[T]) Set(items []*Item[T]) {
	s.slots = make([]atomic.Pointer[Item[T]], len(items))
	for i, it := range items {
		s.slots[i].Store(it)
		s.version = max(s.version, it.since)
	}
}

// Follow makes s, which is empty, the version that follows prev: with some items
// replaced, each once. It is O(changes) on average, if prev is the latest version, and
// else O(Len).
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
	// Readers of prev find the step before they find the items.
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

// copyOf makes s a slice of its own.
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
