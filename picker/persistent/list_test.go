// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// slowList is the oracle: a version with a slice of all items.
type slowList struct {
	List[int]
	items []int
}

// check compares a version with the oracle, and checks how it is made.
func (l slowList) check(t *testing.T, what string) {
	t.Helper()
	if got := l.Slice(); !slices.Equal(got, l.items) || l.Len() != len(l.items) {
		t.Fatalf("%s: is %v of length %d, want %v", what, got, l.Len(), l.items)
	}
	next := 0
	for i, x := range l.All() {
		if i != next || *x != l.items[i] || l.At(i) != x {
			t.Fatalf("%s: item %d is %d at %p, and at %p by index %d; want %d", what, i, *x, x, l.At(i), next, l.items[i])
		}
		next++
	}
	if next != len(l.items) {
		t.Fatalf("%s: %d items of %d are visited", what, next, len(l.items))
	}
	for k, c := range l.chunks {
		if len(c.items) == 0 || len(c.items) > maxChunk || k > 0 && k < len(l.chunks)-1 && len(c.items)+len(l.chunks[k-1].items) <= maxChunk/2 {
			t.Fatalf("%s: chunk %d of %d has %d items", what, k, len(l.chunks), len(c.items))
		}
		if room := cap(c.items); room > len(c.items)+len(c.items)/4+8 { // otherwise it keeps other chunks in memory
			t.Fatalf("%s: chunk %d of %d items has room for %d", what, k, len(c.items), room)
		}
	}
}

// checkSince applies the differences from another version to it.
func (l slowList) checkSince(t *testing.T, what string, before slowList) {
	t.Helper()
	var got []int
	kept := 0
	for was, is := range l.Since(before.List) {
		got = append(got, before.items[kept:was.From]...)
		if is.From != len(got) {
			t.Fatalf("%s: %v has become %v, and %d items come before that", what, was, is, len(got))
		}
		got = append(got, l.items[is.From:is.To]...)
		kept = was.To
	}
	if got = append(got, before.items[kept:]...); !slices.Equal(got, l.items) {
		t.Fatalf("%s: the differences lead from %v to %v, want %v", what, before.items, got, l.items)
	}
}

// rebuild returns the next version, made item by item and of shared chunks: from equal and
// different items, with another length.
func (l slowList) rebuild(rng *rand.Rand, value *int) slowList {
	items := slices.Clone(l.items)
	for range rng.IntN(3) {
		if len(items) > 0 {
			*value++
			items[rng.IntN(len(items))] = *value
		}
	}
	switch rng.IntN(6) {
	case 0:
		items = items[:rng.IntN(len(items)+1)]
	case 1:
		for range rng.IntN(400) {
			*value++
			items = append(items, *value)
		}
	case 2: // items of the previous version at another position
		items = append(items, items[max(0, len(items)-maxChunk):]...)
	default: // items removed and inserted
		for range rng.IntN(4) {
			i := rng.IntN(len(items) + 1)
			items = slices.Delete(items, i, min(len(items), i+rng.IntN(60)))
			i = rng.IntN(len(items) + 1)
			*value++
			items = slices.Insert(items, i, slices.Repeat([]int{*value}, rng.IntN(40))...)
		}
	}
	var b Builder[int]
	b.Follow(l.List, rng.IntN(2)*(len(items)+rng.IntN(3)))
	like, likes := rng.IntN(3), 0
	for i := 0; i < len(items); i++ {
		if at := slices.Index(l.items[likes:], items[i]); like == 0 {
			likes = i // as if nothing had moved
		} else if at >= 0 {
			likes += at
		} else {
			b.Add(items[i], -1)
			continue
		}
		if size := l.chunkSize(likes); like == 2 && size > 0 && i+size <= len(items) && slices.Equal(items[i:i+size], l.items[likes:likes+size]) {
			if b.Share(likes, likes+size+1) {
				panic("a part of a chunk was shared")
			}
			if b.Share(likes, likes+size) {
				i, likes = i+size-1, likes+size
				continue
			}
		}
		b.Add(items[i], likes)
		likes = min(likes+1, len(l.items))
	}
	return slowList{b.List(), items}
}

// chunkSize returns the size of the chunk that starts with item i, or 0.
func (l slowList) chunkSize(i int) int {
	for k, c := range l.chunks {
		if l.start(k) == i {
			return len(c.items)
		}
	}
	return 0
}

// TestList changes random versions of lists, and checks that all of them remain unchanged.
func TestList(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		value := 0
		all := []slowList{{}}
		for step := range 60 {
			from := all[max(0, len(all)-1-rng.IntN(3))]
			next := from.rebuild(rng, &value)
			what := fmt.Sprintf("seed %d, step %d", seed, step)
			next.check(t, what)
			next.checkSince(t, what, from)
			next.checkSince(t, what, all[rng.IntN(len(all))])
			all = append(all, next)
		}
		for i, l := range all {
			l.check(t, fmt.Sprintf("seed %d, version %d at the end", seed, i))
		}
	}
}

// TestListShares checks that an unchanged list is the previous version, and that no chunk occurs twice.
func TestListShares(t *testing.T) {
	const n = 100 * maxChunk
	items := make([]int, n)
	first := Of(items...)
	var b Builder[int]
	if got := testing.AllocsPerRun(100, func() {
		b = Builder[int]{before: first}
		for i, x := range items {
			b.Add(x, i)
		}
		if !b.List().Same(first) {
			t.Error("a list of the same items is a new list")
		}
	}); got > 0 {
		t.Errorf("an unchanged list allocates %v times", got)
	}
	again := Builder[int]{before: first}
	for i := range n + maxChunk {
		again.Add(0, i)
	}
	if twice := again.List(); twice.chunks[100].same(twice.chunks[99]) {
		t.Error("a chunk is in two places of a list")
	}
	if !first.Same(first) || first.Same(Of(items...)) || !Of[int]().Same(List[int]{}) {
		t.Error("Same is wrong")
	}
}

// TestBuilderResumesSharing checks that a list made by a Builder shares the chunks after an item that
// was removed, inserted or replaced, and that Since finds these differences.
func TestBuilderResumesSharing(t *testing.T) {
	const n = 40 * maxChunk
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}
	whole := Of(items...)
	for _, tt := range []struct {
		name   string
		next   []int
		differ int // items, at most
	}{
		{"nothing", items, 0},
		{"an item replaced", slices.Replace(slices.Clone(items), 1000, 1001, -1), maxChunk},
		{"an item inserted", slices.Insert(slices.Clone(items), 1000, -1), maxChunk + 1},
		{"an item removed", slices.Delete(slices.Clone(items), 1000, 1001), maxChunk},
		{"the first item of a chunk removed", slices.Delete(slices.Clone(items), 850, 851), 2 * maxChunk},
		{"items before a chunk inserted", slices.Insert(slices.Clone(items), 850, -1, -2, -3), 3},
		{"a chunk removed", slices.Delete(slices.Clone(items), 850, 850+maxChunk), maxChunk},
		{"an item removed and one inserted", slices.Insert(slices.Delete(slices.Clone(items), 1000, 1001), 3000, -1), 2*maxChunk + 1},
	} {
		var b Builder[int]
		b.Follow(whole, len(tt.next))
		for _, x := range tt.next {
			b.Add(x, x)
		}
		list := b.List()
		if !slices.Equal(list.Slice(), tt.next) {
			t.Errorf("%s: the list has other items", tt.name)
		}
		differ := 0
		for was, is := range list.Since(whole) {
			differ += max(was.Len(), is.Len())
		}
		if differ > tt.differ {
			t.Errorf("%s: %d items differ, want %d at most", tt.name, differ, tt.differ)
		}
	}
}

// TestListReaders has readers hold versions while the next ones are made.
func TestListReaders(t *testing.T) {
	latest := slowList{Of(make([]int, 1000)...), make([]int, 1000)}
	rng := rand.New(rand.NewPCG(1, 2))
	value := 0
	var wg sync.WaitGroup
	for round := range 100 {
		held := latest
		wg.Go(func() { held.check(t, fmt.Sprint("round ", round)) })
		latest = held.rebuild(rng, &value)
	}
	wg.Wait()
}
