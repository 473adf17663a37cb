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
