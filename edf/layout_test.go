// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/kit/slow"
)

// A Schedule derived from another one by any number of changes makes the same picks as one made
// from the weights.
func TestReweighSomeIsReweigh(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 7))
	shared := 0
	for _, weights := range randomSets(scaled(300), 100) {
		s, err := Config{Weights: weights, Start: r.Uint64()}.Schedule()
		kit.Must(t, err)
		for range 12 {
			ticket := s.base + r.Uint64N(40)
			var changes []Change
			changed := slices.Clone(weights)
			for range 1 + r.IntN(3) {
				ch := randomChange(r, changed)
				changes = append(changes, ch)
				changed[ch.Index] = ch.Weight
			}
			next, err := s.ReweighSome(changes, ticket)
			want, wantErr := remade(s, changed, ticket)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("weights %v, then %v: error %v, want %v", weights, changed, err, wantErr)
			}
			if err != nil {
				continue
			}
			if err := next.layout.verify(changed); err != nil {
				t.Fatalf("weights %v, then %v: %v", weights, changed, err)
			}
			if next.links != nil && s.links != nil && next.links[0] == s.links[0] {
				shared++
			}
			if got, want := next.start, want.start; got != want {
				t.Fatalf("weights %v, then %v: starts at %d, want %d", weights, changed, got, want)
			}
			for k := range uint64(300) {
				if got, want := next.At(ticket+k), want.At(ticket+k); got != want {
					t.Fatalf("weights %v, then %v: pick %d is %d, want %d", weights, changed, k, got, want)
				}
			}
			s, weights = next, changed
		}
	}
	if shared == 0 {
		t.Error("no Schedule shares anything with the one before it")
	}
}

// remade returns the Schedule that goes on with s, made of all weights.
func remade(s *Schedule, weights []uint32, ticket uint64) (*Schedule, error) {
	c := Config{Weights: weights, Base: ticket}
	total, err := c.totals()
	if err != nil {
		return nil, err
	}
	c.Start = s.total.continued(total, s.Place(ticket))
	return c.Schedule()
}

// randomChange returns a change of one weight: to that of another endpoint, to zero, to a
// random value, or to a value that changes divisors.
func randomChange(r *rand.Rand, weights []uint32) Change {
	i := r.IntN(len(weights))
	w := weights[r.IntN(len(weights))]
	switch r.IntN(6) {
	case 0:
		w = 0
	case 1:
		w = 1 + r.Uint32N(1000)
	case 2:
		w += w
	case 3:
		w = r.Uint32()
	}
	return Change{i, w}
}

// verify returns an error if l does not correspond to the weights.
func (l *layout) verify(weights []uint32) error {
	total, err := Config{Weights: weights}.totals()
	if err != nil || l.total != total {
		return fmt.Errorf("totals %+v, want %+v, %v", l.total, total, err)
	}
	if l.links == nil {
		return nil
	}
	size := 0
	for k, c := range l.classes {
		size += int(c.size)
		if c.size == 0 {
			continue
		}
		index := c.first
		for n := range c.size {
			e := l.links.at(index)
			if e.class != uint32(k) || weights[index] != uint32(uint64(c.weight)*l.scale) {
				return fmt.Errorf("endpoint %d of weight %d is in class %d, which it is not a member of", index, weights[index], k)
			}
			if last := n+1 == c.size; last && (e.next != c.first || index != c.last) || !last && e.next <= index {
				return fmt.Errorf("after endpoint %d, number %d of %d in class %d, the next is %d", index, n, c.size, k, e.next)
			}
			index = e.next
		}
	}
	if size != total.active {
		return fmt.Errorf("%d endpoints in classes, want %d", size, total.active)
	}
	return nil
}

// The source of a layout is unchanged, even while the picks of its queue are made.
func TestChangesShare(t *testing.T) {
	weights := make([]uint32, 1000)
	for i := range weights {
		weights[i] = 1 + uint32(i%7)
	}
	s, err := Config{Weights: weights, Start: 5}.Schedule()
	kit.Must(t, err)
	next, err := s.ReweighSome([]Change{{500, 100}}, s.base)
	kit.Must(t, err)
	same := 0
	for k := range s.links {
		if s.links[k] == next.links[k] {
			same++
		}
	}
	if len(s.links)-same > 2 {
		t.Errorf("%d of %d chunks are shared, want all but two", same, len(s.links))
	}
	if !slices.Equal(s.Weights(), weights) {
		t.Error("a change changes the Schedule that it is made of")
	}
	if err := s.layout.verify(weights); err != nil {
		t.Error(err)
	}
	const runs = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range runs {
		if _, err := s.ReweighSome([]Change{{500, 100 + uint32(i%2)}}, s.base); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if bytes := (after.TotalAlloc - before.TotalAlloc) / runs; bytes > 7<<10 {
		t.Errorf("a change allocates %d bytes", bytes)
	}
}

func TestCompare(t *testing.T) {
	s, err := Config{Weights: []uint32{3, 0, 5}}.Schedule()
	kit.Must(t, err)
	for _, test := range []struct {
		weights      []uint32
		same, active bool
	}{
		{[]uint32{3, 0, 5}, true, true},
		{[]uint32{3, 0, 6}, false, true},
		{[]uint32{3, 1, 5}, false, false},
		{[]uint32{0, 3, 5}, false, false},
		{[]uint32{3, 0}, false, false},
	} {
		if same, active := s.Compare(test.weights); same != test.same || active != test.active {
			t.Errorf("Compare(%v) = %v, %v, want %v, %v", test.weights, same, active, test.same, test.active)
		}
	}
	equal, _ := Config{Weights: []uint32{7, 7}}.Schedule()
	if same, active := equal.Compare([]uint32{7, 7}); !same || !active || !slices.Equal(equal.Weights(), []uint32{7, 7}) {
		t.Error("equal weights are not recognized")
	}
}

// Weights that become too large for packed keys take a queue of another kind.
func TestReweighSomeWide(t *testing.T) {
	s, err := Config{Weights: []uint32{1 << 30, 5}}.Schedule()
	kit.Must(t, err)
	next, err := s.ReweighSome([]Change{{1, 1<<31 + 1}}, 0)
	kit.Must(t, err)
	if s.single || !next.single {
		t.Errorf("each endpoint is a class: %v, then %v, want false and true", s.single, next.single)
	}
}

// Weights that only change their scale continue the sequence.
func TestReweighScale(t *testing.T) {
	weights := []uint32{3, 0, 7, 1}
	s, err := Config{Weights: weights}.Schedule()
	kit.Must(t, err)
	want := slow.NewEDF(weights).Take(50)
	for n := range want {
		if got := s.At(uint64(n)); got != want[n] {
			t.Fatalf("pick %d is %d, want %d", n, got, want[n])
		}
		if s, err = s.Reweigh([]uint32{3 << (n % 2), 0, 7 << (n % 2), 1 << (n % 2)}, uint64(n)+1); err != nil {
			t.Fatal(err)
		}
	}
}

// A changed weight does not move the next pick of other endpoints: endpoints of equal weight
// continue in turn, although the greatest common divisor changes and with it the period.
func TestReweighKeepsPlace(t *testing.T) {
	weights := slices.Repeat([]uint32{100}, 1000)
	s, err := Config{Weights: weights}.Schedule()
	kit.Must(t, err)
	for n := range 500 {
		if s.At(uint64(n)) != n {
			t.Fatalf("pick %d is not %d", n, n)
		}
	}
	weights[999] = 101
	s, err = s.Reweigh(weights, 500)
	kit.Must(t, err)
	// The heavier one now comes first in each round, so it counts among the 500 that have had
	// their turn, in place of the last of them.
	for n := range 500 {
		want := 499 + n
		if got := s.At(uint64(500 + n)); got != want {
			t.Fatalf("pick %d after the update is %d, want %d", n, got, want)
		}
	}
}

// Updates may come more often than picks get round: every endpoint still has its share.
// (Envoy starved light ones, pull request 10064; so does a fresh start at zero each time.)
func TestReweighOften(t *testing.T) {
	oneGoroutine(t)
	for _, every := range []int{1, 3, 10, 100} {
		r := rand.New(rand.NewPCG(10064, uint64(every)))
		weights := make([]uint32, 110)
		for i := range weights {
			weights[i] = 128
			if i >= 100 {
				weights[i] = 10
			}
		}
		s, err := Config{Weights: weights, Start: r.Uint64()}.Schedule()
		kit.Must(t, err)
		had, due := make([]float64, len(weights)), make([]float64, len(weights))
		for n := range 40_000 {
			had[s.At(uint64(n))]++
			for i, w := range weights {
				due[i] += float64(w) / float64(s.total.sum)
			}
			if n%every == 0 {
				i := r.IntN(len(weights))
				weights[i] += weights[i]/10 - 2*weights[i]/10*r.Uint32N(2)
				if s, err = s.Reweigh(weights, uint64(n)+1); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range had {
			if off := max(had[i]/due[i], due[i]/had[i]); off > 1.4 {
				t.Errorf("update every %d picks: %d was picked %v times, its share is %.1f", every, i, had[i], due[i])
			}
		}
	}
}
