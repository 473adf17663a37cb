// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
)

// List is one version of a list of values. It never changes; Replace makes the next version.
// Like a slice it is three words that are copied, and any number of goroutines may read it.
// The zero List is empty. It is not read while RPCs are picked: see Slice for that.
//
// The items are in chunks of up to 85. Versions share those that they have in common:
//
//	version 1:  [a b c] [d e f] [g h]
//	               │               │
//	version 2:  [a b c] [d x f] [g h]    = Replace(4, 5, x)
//
// So the next version takes a copy of a chunk and of the list of chunks, and Since finds what
// differs between two versions by comparing a pointer for each chunk. Two chunks next to
// each other have more items than half a full one has, so there are at most Len/21 + 1.
type List[T any] struct {
	chunks []chunk[T]
}

// chunk is a run of items. Its array belongs to it alone.
type chunk[T any] struct {
	items []T // 1 to maxChunk
	end   int // index in the list of what comes after the last one
}

// maxChunk is how many items a chunk has at most: as many endpoints of 48 bytes as there is
// room for in 4096, with the 8 that the allocator keeps for itself. Fewer would make the list
// of chunks longer, which every change copies as well.
const maxChunk = 85

// Span is the items From to To, without To, of a list.
type Span struct{ From, To int }

// Len returns how many items there are.
func (s Span) Len() int { return s.To - s.From }

// Of returns a list of items.
func Of[T comparable](items ...T) List[T] {
	var b Builder[T]
	b.Grow(len(items))
	for i := range items {
		b.Add(items[i])
	}
	return b.List()
}

// Len returns how many items there are.
func (l List[T]) Len() int { return l.start(len(l.chunks)) }

// start returns the index of a chunk's first item; the chunk after the last one has Len.
func (l List[T]) start(k int) int {
	if k == 0 {
		return 0
	}
	return l.chunks[k-1].end
}

// At returns an item, which must not be written to. O(1) in lists of a Builder and in those
// that replaced items one for one, else O(log Len).
func (l List[T]) At(i int) *T {
	k := i / maxChunk // no chunk has more
	if i >= l.chunks[k].end {
		k = l.find(i)
	}
	c := &l.chunks[k]
	return &c.items[i-(c.end-len(c.items))]
}

// find returns the chunk of an item; what comes after the last item counts to the last chunk.
//
//go:noinline
func (l List[T]) find(i int) int {
	k, _ := slices.BinarySearchFunc(l.chunks, i, func(c chunk[T], i int) int {
		if c.end <= i {
			return -1
		}
		return 1
	})
	return min(k, len(l.chunks)-1)
}

// All visits the items, which must not be written to, with their indexes.
func (l List[T]) All() iter.Seq2[int, *T] {
	return func(yield func(int, *T) bool) {
		i := 0
		for k := range l.chunks {
			items := l.chunks[k].items
			for j := range items {
				if !yield(i, &items[j]) {
					return
				}
				i++
			}
		}
	}
}

// Slice returns the items as a slice of its own.
func (l List[T]) Slice() []T {
	all := make([]T, 0, l.Len())
	for _, c := range l.chunks {
		all = append(all, c.items...)
	}
	return all
}

// String is that of a slice of the items.
func (l List[T]) String() string { return fmt.Sprint(l.Slice()) }

// MarshalJSON implements json.Marshaler: as a slice of the items.
func (l List[T]) MarshalJSON() ([]byte, error) { return json.Marshal(l.Slice()) }

// Same reports whether l and m are one and the same version, or both empty. O(1).
func (l List[T]) Same(m List[T]) bool {
	return len(l.chunks) == len(m.chunks) && (len(l.chunks) == 0 || &l.chunks[0] == &m.chunks[0])
}

// Equal reports whether l and m have equal items. O(Len) at most.
func Equal[T comparable](l, m List[T]) bool {
	if l.Len() != m.Len() {
		return false
	}
	if l.Same(m) {
		return true
	}
	for i, x := range l.All() {
		if *x != *m.At(i) {
			return false
		}
	}
	return true
}

// Since visits what differs from another version: the items was of that one have become the
// items is of l, one of which may be none. All others are the same, in the same order. It goes
// by chunks, so some items of was and is may be equal. O(Len/21) besides.
//
// Of two lists that have nothing to do with each other, all items differ.
func (l List[T]) Since(other List[T]) iter.Seq2[Span, Span] {
	return func(yield func(was, is Span) bool) {
		if l.Same(other) {
			return
		}
		a, b := other.chunks, l.chunks
		k, m, n := 0, len(a), len(b)
		for k < m && k < n && a[k].same(b[k]) {
			k++
		}
		for m > k && n > k && a[m-1].same(b[n-1]) {
			m, n = m-1, n-1
		}
		if m != n {
			yield(other.span(k, m), l.span(k, n))
			return
		}
		for ; k < m; k++ {
			if !a[k].same(b[k]) && !yield(other.span(k, k+1), l.span(k, k+1)) {
				return
			}
		}
	}
}

func (c chunk[T]) same(as chunk[T]) bool { return &c.items[0] == &as.items[0] }

// span returns the items of the chunks k to n, without n.
func (l List[T]) span(k, n int) Span { return Span{l.start(k), l.start(n)} }

// Replace returns the list that has others in the place of the items i to j, without j, as
// slices.Replace does: so it changes, inserts and removes items. It copies up to two chunks,
// or four that are small, and the list of chunks.
func (l List[T]) Replace(i, j int, others ...T) List[T] {
	var left, right []T // what stays of the chunks that change
	k, n := 0, 0        // they are these, without n
	if len(l.chunks) > 0 {
		k, n = l.find(i), l.find(max(i, j-1))+1
		left = l.chunks[k].items[:i-l.start(k)]
		right = l.chunks[n-1].items[j-l.start(n-1):]
	}
	size := len(left) + len(others) + len(right)
	var before, after []T // small chunks beside them
	if n < len(l.chunks) && size+len(l.chunks[n].items) <= maxChunk/2 {
		after = l.chunks[n].items
		size, n = size+len(after), n+1
	}
	if k > 0 && size+len(l.chunks[k-1].items) <= maxChunk/2 {
		before = l.chunks[k-1].items
		size, k = size+len(before), k-1
	}
	items := slices.Concat(before, left, others, right, after)
	pieces := (size + maxChunk - 1) / maxChunk
	if k+pieces+len(l.chunks)-n == 0 {
		return List[T]{}
	}
	next := List[T]{append(make([]chunk[T], 0, k+pieces+len(l.chunks)-n), l.chunks[:k]...)}
	for p := range pieces {
		piece := items[size*p/pieces : size*(p+1)/pieces]
		if pieces > 1 {
			piece = slices.Clone(piece) // the others may become garbage before it
		}
		next.add(piece)
	}
	for _, c := range l.chunks[n:] {
		next.add(c.items)
	}
	return next
}

// add adds a chunk while the list is being made.
func (l *List[T]) add(items []T) {
	l.chunks = append(l.chunks, chunk[T]{items, l.Len() + len(items)})
}

// Builder makes a list item by item. The zero Builder makes one that shares nothing. A
// Builder makes one list, and must not be copied.
type Builder[T comparable] struct {
	before List[T]
	room   int // for items that are to come

	list List[T] // the full chunks; empty as long as they are the first ones of before
	full int     // how many they are

	// The chunk in the making. It is old[:n] as long as items is nil.
	old   []T // before's chunk in its place
	items []T
	n     int
}

// Follow has the list share with an earlier one the full chunks and the last one that have the
// same items, and be that one if all are the same. What is shared takes no memory. It is for
// lists that come from a Builder, too: in others, chunks are in other places.
func (b *Builder[T]) Follow(before List[T]) { b.before = before }

// Grow says how many items are to come at most.
func (b *Builder[T]) Grow(n int) { b.room = n }

// Add adds an item.
func (b *Builder[T]) Add(x T) {
	if b.n == 0 {
		if b.old = nil; b.full < len(b.before.chunks) {
			b.old = b.before.chunks[b.full].items
		}
	}
	if b.items == nil && (b.n >= len(b.old) || b.old[b.n] != x) {
		b.items = append(make([]T, 0, min(b.n+max(b.room, 1), maxChunk)), b.old[:b.n]...)
	}
	if b.items != nil {
		b.items = append(b.items, x)
	}
	b.room--
	if b.n++; b.n == maxChunk {
		b.seal()
	}
}

// seal ends the chunk in the making.
func (b *Builder[T]) seal() {
	same := b.items == nil && b.n == len(b.old)
	if !same && b.items == nil {
		b.items = b.old[:b.n]
	}
	if !same && len(b.list.chunks) == 0 {
		more := (b.n + max(b.room, 0) + maxChunk - 1) / maxChunk
		b.list.chunks = append(make([]chunk[T], 0, b.full+more), b.before.chunks[:b.full]...)
	}
	switch {
	case !same && len(b.items) < cap(b.items):
		b.list.add(slices.Clone(b.items))
	case !same:
		b.list.add(b.items)
	case len(b.list.chunks) > 0:
		b.list.add(b.old)
	}
	b.full++
	b.items, b.n = nil, 0
}

// List returns the list.
func (b *Builder[T]) List() List[T] {
	if b.n > 0 {
		b.seal()
	}
	switch {
	case len(b.list.chunks) > 0:
		return b.list
	case b.full == len(b.before.chunks):
		return b.before
	}
	return List[T]{append([]chunk[T](nil), b.before.chunks[:b.full]...)}
}
