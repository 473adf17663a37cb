// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
)

// List is one version of a list of values. It is immutable; a Builder makes the next version.
// Like a slice, it is copied as three words and is safe for concurrent reads. The zero List is
// empty. Use Slice for data that is read while RPCs are picked.
//
// The items are stored in chunks of up to 85. Versions share their common chunks:
//
//	version 1:  [a b c] [d e f] [g h]
//	               │               │
//	version 2:  [a b c] [d x f] [g h]    item 4 is x
//
// The next version copies only a chunk and the list of chunks, and Since finds the differences
// between two versions by comparing one pointer per chunk. Two adjacent chunks together are
// more than half full, except the last two, so there are at most Len/21 + 2 chunks.
type List[T any] struct {
	chunks []chunk[T]
}

// chunk is a run of items. It owns its array.
type chunk[T any] struct {
	items []T // 1 to maxChunk
	end   int // index in the list after the last item
}

// maxChunk is the maximum number of items in a chunk. It is the number of endpoints of 48 bytes
// that fit into 4096 bytes, of which the allocator uses 8. Smaller chunks would make the list
// of chunks longer, and every change copies that list.
const maxChunk = 85

// span is the half-open range [From, To) of items of a list.
type span struct{ From, To int }

// Len returns the number of items.
func (s span) Len() int { return s.To - s.From }

// Of returns a list of items.
func Of[T comparable](items ...T) List[T] {
	var b Builder[T]
	b.Follow(List[T]{}, len(items))
	for i := range items {
		b.Add(items[i], -1)
	}
	return b.List()
}

// Len returns the number of items.
func (l List[T]) Len() int { return l.start(len(l.chunks)) }

// start returns the index of the first item of chunk k, or Len if k is the number of chunks.
func (l List[T]) start(k int) int {
	if k == 0 {
		return 0
	}
	return l.chunks[k-1].end
}

// At returns an item, which must not be modified. O(1) in lists whose items
// were only ever replaced one for one, otherwise O(log Len).
func (l List[T]) At(i int) *T {
	k := i / maxChunk // no chunk is larger
	if i >= l.chunks[k].end {
		k = l.find(i)
	}
	c := &l.chunks[k]
	return &c.items[i-(c.end-len(c.items))]
}

// find returns the chunk of an item, or the last chunk for i = Len.
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

// All returns an iterator over the items and their indexes. The items must not be modified.
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

// Slice returns the items in a new slice.
func (l List[T]) Slice() []T {
	all := make([]T, 0, l.Len())
	for _, c := range l.chunks {
		all = append(all, c.items...)
	}
	return all
}

// String formats the items like a slice.
func (l List[T]) String() string { return fmt.Sprint(l.Slice()) }

// MarshalJSON implements json.Marshaler. It encodes the items as an array.
func (l List[T]) MarshalJSON() ([]byte, error) { return json.Marshal(l.Slice()) }

// Same reports whether l and m are the same version, or both empty. O(1).
func (l List[T]) Same(m List[T]) bool {
	return len(l.chunks) == len(m.chunks) && (len(l.chunks) == 0 || &l.chunks[0] == &m.chunks[0])
}

// Since returns an iterator over the differences from another version: the items was of other
// were replaced by the items is of l. One of the two spans may be empty. All items outside the
// spans are equal and in the same order. The comparison is by chunk, so some items within the
// spans may also be equal. O(Len/21) plus the differences.
//
// All items of two unrelated lists differ.
func (l List[T]) Since(other List[T]) iter.Seq2[span, span] {
	return func(yield func(was, is span) bool) {
		if l.Same(other) {
			return
		}
		a, b := other.chunks, l.chunks
		k, n := 0, 0
		for k < len(a) || n < len(b) {
			i, j := nextCommon(a[k:], b[n:])
			if i+j > 0 && !yield(other.span(k, k+i), l.span(n, n+j)) {
				return
			}
			k, n = k+i+1, n+j+1
		}
	}
}

// nextCommon returns how many chunks of a and b are before the next one that both have. It looks
// at four chunks of each, at chunks with the same index, and at the last ones, so Since takes
// linear time.
func nextCommon[T any](a, b []chunk[T]) (i, j int) {
	for sum := range 7 {
		for i := max(0, sum-3); i <= min(sum, 3); i++ {
			if j := sum - i; i < len(a) && j < len(b) && a[i].same(b[j]) {
				return i, j
			}
		}
	}
	for i := range min(len(a), len(b)) {
		if a[i].same(b[i]) {
			return i, i
		}
	}
	i, j = len(a), len(b)
	for i > 0 && j > 0 && a[i-1].same(b[j-1]) {
		i, j = i-1, j-1
	}
	return i, j
}

func (c chunk[T]) same(as chunk[T]) bool { return &c.items[0] == &as.items[0] }

// span returns the items of the chunks [k, n).
func (l List[T]) span(k, n int) span { return span{l.start(k), l.start(n)} }

// add appends a chunk during construction.
func (l *List[T]) add(items []T) {
	l.chunks = append(l.chunks, chunk[T]{items, l.Len() + len(items)})
}

// Builder makes a list item by item. With the zero Builder the list shares nothing. A Builder
// makes one list, and must not be copied.
type Builder[T comparable] struct {
	before List[T]
	room   int // for items to come
	k      int // the first chunk of before that may still be shared

	list List[T] // full chunks; empty while they are the first chunks of before
	full int     // number of full chunks
	last int     // size of the last one

	// The chunk under construction is old[:n] while items is nil.
	old   []T // the chunk of before that starts with the same item
	items []T
	n     int
}

// Follow makes the list share chunks with an earlier list where their items are equal, so shared
// chunks need no memory. If all items are equal, the list is the earlier one. It reserves space
// for n items.
func (b *Builder[T]) Follow(before List[T], n int) { b.before, b.room = before, n }

// Add appends an item, and reports whether it is the first one of a chunk. like is the index in
// the earlier list of the item that x may be equal to, and is greater than those before; -1 if
// there is no such item. Where one of the two lists has more items than the other, sharing continues with
// the next chunk of the earlier list whose first item is like one of the new list.
func (b *Builder[T]) Add(x T, like int) (first bool) {
	if c := b.chunkAt(like); c != nil {
		if b.n > 0 && b.mayPrecede(len(c)) {
			b.seal()
		}
		if b.n == 0 {
			b.old = c
		}
	}
	first = b.n == 0
	if b.items == nil && (b.n >= len(b.old) || b.old[b.n] != x) {
		size := len(b.old)
		if b.n >= size {
			size = min(b.n+max(b.room, 1), maxChunk)
		}
		b.items = append(make([]T, 0, size), b.old[:b.n]...)
	}
	if b.items != nil {
		b.items = append(b.items, x)
	}
	b.room--
	b.n++
	if b.n == maxChunk || b.items == nil && b.n == len(b.old) && b.n > maxChunk/2 {
		b.seal()
	}
	return first
}

// Share appends the items [i, j) of the earlier list. It returns false, and appends nothing, unless
// they are a chunk, no later item has been shared already, and the new list would not have too small
// a chunk before them.
func (b *Builder[T]) Share(i, j int) bool {
	c := b.chunkAt(i)
	if len(c) != j-i || b.n > 0 && !b.mayPrecede(len(c)) || b.n == 0 && b.full > 0 && b.last+len(c) <= maxChunk/2 {
		return false
	}
	if b.n > 0 {
		b.seal()
	}
	b.old, b.n = c, len(c)
	b.room -= len(c)
	b.seal()
	return true
}

// chunkAt returns the chunk of the earlier list that starts with item i, unless it or a later one
// has been shared.
func (b *Builder[T]) chunkAt(i int) []T {
	for b.k < len(b.before.chunks) && b.before.start(b.k) < i {
		b.k++
	}
	if b.k == len(b.before.chunks) || b.before.start(b.k) != i {
		return nil
	}
	return b.before.chunks[b.k].items
}

// mayPrecede reports whether the chunk under construction, with a chunk of the given size after
// it, would be large enough.
func (b *Builder[T]) mayPrecede(size int) bool {
	return b.n+size > maxChunk/2 && (b.full == 0 || b.last+b.n > maxChunk/2)
}

// seal completes the chunk under construction.
func (b *Builder[T]) seal() {
	same := b.items == nil && b.n == len(b.old)
	if !same && b.items == nil {
		b.items = b.old[:b.n]
	}
	inPlace := same && len(b.list.chunks) == 0 && &b.before.chunks[b.full].items[0] == &b.old[0]
	if !inPlace && len(b.list.chunks) == 0 {
		more := (b.n + max(b.room, 0) + maxChunk - 1) / maxChunk
		b.list.chunks = append(make([]chunk[T], 0, b.full+more), b.before.chunks[:b.full]...)
	}
	switch {
	case inPlace:
	case same:
		b.list.add(b.old)
	case len(b.items) < cap(b.items):
		b.list.add(slices.Clone(b.items))
	default:
		b.list.add(b.items)
	}
	if same && b.k < len(b.before.chunks) && &b.before.chunks[b.k].items[0] == &b.old[0] {
		b.k++
	}
	b.full++
	b.last = b.n
	b.old, b.items, b.n = nil, nil, 0
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
