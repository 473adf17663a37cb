// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"fmt"
	"maps"
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

// TestSame: slices and maps are the same only if they share memory; empty slices are all the same.
func TestSame(t *testing.T) {
	s, m := []int{1, 2}, map[int]int{1: 2}
	for _, tt := range []struct {
		name      string
		got, want bool
	}{
		{"slice itself", SameSlice(s, s), true},
		{"prefix", SameSlice(s, s[:1]), false},
		{"suffix", SameSlice(s, s[1:]), false},
		{"equal slice", SameSlice(s, slices.Clone(s)), false},
		{"empty slices", SameSlice(s[:0], nil), true},
		{"map itself", SameMap(m, m), true},
		{"equal map", SameMap(m, maps.Clone(m)), false},
		{"nil maps", SameMap[map[int]int](nil, nil), true},
		{"nil map and empty map", SameMap(nil, map[int]int{}), false},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: same is %v, want %v", tt.name, tt.got, tt.want)
		}
	}
}

// slow is the oracle: a version with a copy of all values.
type slow struct {
	*Slice[int]
	values []int
}

func (s slow) check(t *testing.T, what string) {
	t.Helper()
	for i, want := range s.values {
		if got := *s.At(i); got != want || s.Item(i).Value != want {
			t.Fatalf("%s: At(%d) = %d and Item(%d) = %d, want %d", what, i, got, i, s.Item(i).Value, want)
		}
		if got, current := s.Latest(i); current && *got != want {
			t.Fatalf("%s: Latest(%d) = %d, want %d", what, i, *got, want)
		}
	}
}

func made(values ...int) slow {
	items := make([]*Item[int], len(values))
	for i, v := range values {
		items[i] = &Item[int]{Value: v}
	}
	s := slow{new(Slice[int]), values}
	s.Set(items)
	return s
}

// follow returns a version with a few new values.
func (s slow) follow(rng *rand.Rand, value *int) slow {
	next := slow{new(Slice[int]), slices.Clone(s.values)}
	var changes []Change[int]
	for _, i := range rng.Perm(len(s.values))[:rng.IntN(min(3, len(s.values))+1)] {
		*value++
		next.values[i] = *value
		changes = append(changes, Change[int]{i, &Item[int]{Value: *value}})
	}
	next.Follow(s.Slice, changes)
	return next
}

// TestVersions follows the latest version, and occasionally an older one, and makes new slices
// from the items of one; all versions remain unchanged.
func TestVersions(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		value := 10
		all := []slow{made([]int{0, 1, 2, 3, 4, 5, 6, 7}[:1+rng.IntN(8)]...)}
		for range 40 {
			from := all[len(all)-1]
			if rng.IntN(4) == 0 {
				from = all[rng.IntN(len(all))]
			}
			next := from.follow(rng, &value)
			if rng.IntN(10) == 0 {
				items := make([]*Item[int], from.Len())
				for i := range items {
					items[i] = from.Item(i)
				}
				next = slow{new(Slice[int]), from.values}
				next.Set(items)
			}
			all = append(all, next)
			for i, v := range all {
				v.check(t, fmt.Sprintf("seed %d, version %d of %d", seed, i, len(all)))
			}
		}
	}
}

// TestConcurrentReaders has readers hold versions while the next ones are made, and two
// goroutines follow the same one.
func TestConcurrentReaders(t *testing.T) {
	latest := made(make([]int, 100)...)
	var wg sync.WaitGroup
	for round := range 200 {
		held := latest
		for k := range 3 {
			wg.Go(func() { held.check(t, fmt.Sprintf("round %d, reader %d", round, k)) })
		}
		var both [2]slow
		var writers sync.WaitGroup
		for k := range both {
			writers.Go(func() {
				value := (2*round + k + 1) * 1000
				both[k] = held.follow(rand.New(rand.NewPCG(uint64(round), uint64(k))), &value)
			})
		}
		writers.Wait()
		for _, v := range both {
			v.check(t, fmt.Sprintf("round %d", round))
		}
		latest = both[round%2]
	}
	wg.Wait()
}

// TestFollowAllocates checks that the cost of a change is the difference, on average, and that
// a chain of versions has at most as many steps as there are items.
func TestFollowAllocates(t *testing.T) {
	const n = 1000
	s := made(make([]int, n)...)
	first := s.Slice
	latest := s.Slice
	item := 0
	per := testing.AllocsPerRun(3*n, func() {
		next := new(Slice[int])
		next.Follow(latest, []Change[int]{{item % n, &Item[int]{Value: item}}})
		latest, item = next, item+1
	})
	if per > 5 {
		t.Errorf("a change of one of %d allocates %v times, want 5 at most", n, per)
	}
	steps := 0
	for v := first; v.next.Load() != nil; v = v.next.Load().to {
		steps++
	}
	if steps > n {
		t.Errorf("the first version holds %d later ones, want %d at most", steps, n)
	}
	s.check(t, "the first version")
	if _, current := latest.Latest(0); !current {
		t.Error("the latest version is not current")
	}
}
