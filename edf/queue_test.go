// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/kit/slow"
)

// impls are all ways to produce a sequence. They must agree in every pick.
var impls = []struct {
	name string
	new  func(Config) (next func() int, err error)
}{
	{"queue", func(c Config) (func() int, error) {
		h, err := c.queue()
		return h.next, err
	}},
	{"schedule", func(c Config) (func() int, error) {
		s, err := c.Schedule()
		return draw(s).next, err
	}},
	{"period", func(c Config) (func() int, error) { // as if no window were needed, filled bit by bit
		s, err := c.schedule(1<<20, 2*block)
		return draw(s).next, err
	}},
	{"window", func(c Config) (func() int, error) {
		s, err := c.schedule(0, 2*block)
		return draw(s).next, err
	}},
}

func take(next func() int, n int) []int {
	picks := make([]int, n)
	for i := range picks {
		picks[i] = next()
	}
	return picks
}

// queue returns the sequence that c describes, without a table.
func (c Config) queue() (*queue, error) {
	total, err := c.totals()
	if err != nil {
		return nil, err
	}
	q := newLayout(c.Weights, total).queue()
	q.seek(c.Start)
	return q, nil
}

// A drawn Schedule has a counter of tickets.
type drawn struct {
	*Schedule
	ticket atomic.Uint64 // the next one
}

func draw(s *Schedule) *drawn {
	d := &drawn{Schedule: s}
	if s != nil {
		d.ticket.Store(s.base)
	}
	return d
}

func (d *drawn) next() int { return d.At(d.ticket.Add(1) - 1) }

// forEachImpl runs a test for all ways to produce the sequence of c.
func forEachImpl(t *testing.T, c Config, f func(t *testing.T, next func() int)) {
	for _, impl := range impls {
		t.Run(impl.name, func(t *testing.T) {
			next, err := impl.new(c)
			kit.Must(t, err)
			f(t, next)
		})
	}
}

// The sequences of the specification, from its text (EDF-8, EDF-9, EDF-13).
func TestSeedVectors(t *testing.T) {
	for _, test := range []struct {
		weights []uint32
		want    []int
	}{
		{[]uint32{1, 1, 1}, []int{0, 1, 2, 0, 1, 2, 0, 1, 2}},
		{[]uint32{7, 7, 7}, []int{0, 1, 2, 0, 1, 2, 0, 1, 2}},
		{[]uint32{2, 1}, []int{0, 0, 1, 0, 0, 1, 0, 0, 1}},
		{[]uint32{1, 2, 4}, []int{2, 1, 2, 2, 0, 1, 2, 2, 1, 2, 2, 0, 1, 2}},
		{[]uint32{5}, []int{0, 0, 0}},
		{[]uint32{0, 2, 0, 1, 0}, []int{1, 1, 3, 1, 1, 3}},
		// Ties are broken by index here, not by waiting time: Envoy would end in 1, 0.
		{[]uint32{11, 3}, []int{0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}},
	} {
		t.Run(fmt.Sprint(test.weights), func(t *testing.T) {
			if got := slow.NewEDF(test.weights).Take(len(test.want)); !slices.Equal(got, test.want) {
				t.Errorf("oracle: got %v, want %v", got, test.want)
			}
			forEachImpl(t, Config{Weights: test.weights}, func(t *testing.T, next func() int) {
				if got := take(next, len(test.want)); !slices.Equal(got, test.want) {
					t.Errorf("got %v, want %v", got, test.want)
				}
			})
		})
	}
}

// D1: the order is exact for all weights.
func TestSequenceIsTheOracles(t *testing.T) {
	const picks = 700
	for _, impl := range impls {
		t.Run(impl.name, func(t *testing.T) {
			t.Parallel()
			for _, weights := range randomSets(scaled(1500), 40) {
				next, err := impl.new(Config{Weights: weights})
				kit.Must(t, err)
				o := slow.NewEDF(weights)
				for n := range picks {
					if got, want := next(), o.Next(); got != want {
						t.Fatalf("weights %v: pick %d is %d, want %d", weights, n, got, want)
					}
				}
			}
		})
	}
}

// Two weights a and b make the hardest comparison where i*b and k*a differ by one: their
// deadlines are 1/ab apart. It must come out right up to the largest product that packs,
// beyond which keys are wide, and up to the largest there is.
func TestNearestDeadlines(t *testing.T) {
	for _, test := range []struct {
		a, b uint32
		wide bool
	}{
		{1 << 30, 1<<31 - 1, false},
		{1 << 30, 1<<31 + 1, true},
		{1<<31 - 1, 1 << 31, true},
		{1<<31 - 99, 1<<31 + 98, true},
		{3, 1<<32 - 4, false},
		{1 << 16, 1<<32 - 1<<16 - 1, false},
	} {
		h, err := Config{Weights: []uint32{test.a, test.b}}.queue()
		kit.Must(t, err)
		if wide := h.wide != nil; wide != test.wide {
			t.Errorf("weights %d and %d: wide keys: %v, want %v", test.a, test.b, wide, test.wide)
		}
		a, b := uint64(test.a), uint64(test.b)
		for _, i := range []uint64{inverse(b, a), a - inverse(b, a)} { // i*b is 1 or -1 modulo a
			n := i*b/a + i - 2
			o := slow.NewEDF([]uint32{test.a, test.b})
			o.Skip(n)
			h.seek(n)
			if got, want := take(h.next, 6), o.Take(6); !slices.Equal(got, want) {
				t.Errorf("weights %d and %d: from pick %d on got %v, want %v", a, b, n, got, want)
			}
		}
	}
}

// inverse returns x with x*a = 1 modulo m, for coprime a and m.
func inverse(a, m uint64) uint64 {
	r0, r1, x0, x1 := int64(m), int64(a%m), int64(0), int64(1)
	for r1 > 1 {
		q := r0 / r1
		r0, r1, x0, x1 = r1, r0-q*r1, x1, x0-q*x1
	}
	return uint64(x1+int64(m)) % m
}

// Keys are moved back every two periods, which must not show (T-EDF-1).
func TestSequenceRepeats(t *testing.T) {
	for _, weights := range randomSets(scaled(400), 40) {
		c := Config{Weights: weights}
		h, err := c.queue()
		kit.Must(t, err)
		period := h.total.period()
		if period > 2000 {
			continue
		}
		want := slow.NewEDF(weights).Take(int(period))
		for _, impl := range impls {
			next, _ := impl.new(c)
			for n := range 7 * period {
				if got, want := next(), want[n%period]; got != want {
					t.Fatalf("%s: weights %v: pick %d of period %d is %d, want %d", impl.name, weights, n%period, n/period, got, want)
				}
			}
		}
	}
}

// Wide keys are moved back as well. Many endpoints of weight zero leave so few bits for
// the deadline that a period short enough to be walked through needs them.
func TestWideSequenceRepeats(t *testing.T) {
	few := []uint32{2_966_000, 2_966_001, 7} // the product of the first two is just above 2^43
	weights := make([]uint32, 1<<18+1)
	weights[5], weights[99], weights[1<<18] = few[0], few[1], few[2]
	wide, err := Config{Weights: weights}.queue()
	kit.Must(t, err)
	packed, _ := Config{Weights: few}.queue()
	if wide.wide == nil || packed.wide != nil {
		t.Fatalf("wide keys: %v and %v, want true and false", wide.wide != nil, packed.wide != nil)
	}
	for n := range uint64(scaled(7)) * wide.total.period() / 2 {
		if got, want := wide.next(), packed.next(); weights[got] != few[want] {
			t.Fatalf("pick %d is %d, with packed keys %d", n, got, want)
		}
	}
}

// EDF-2: at the end of a period shares are exact, and on the way no endpoint falls a whole
// pick behind, nor gets further ahead than n*weight/sum.
func TestQuotas(t *testing.T) {
	for _, weights := range randomSets(scaled(1000), 30) {
		h, err := Config{Weights: weights}.queue()
		kit.Must(t, err)
		picks := make([]uint64, len(weights))
		for n := uint64(1); n <= min(h.total.period(), 3000); n++ {
			i := h.next()
			picks[i]++
			if w := uint64(weights[i]); picks[i]*h.total.sum > w*(n+uint64(h.total.active)) {
				t.Fatalf("weights %v: %d has had %d of %d picks", weights, i, picks[i], n)
			}
			for i, w := range weights {
				if (picks[i]+1)*h.total.sum <= n*uint64(w) {
					t.Fatalf("weights %v: %d has had %d of %d picks", weights, i, picks[i], n)
				}
				if n == h.total.period() && picks[i]*h.total.sum != n*uint64(w) {
					t.Fatalf("weights %v: %d has had %d picks in a period of %d", weights, i, picks[i], n)
				}
			}
		}
	}
}

func TestPacks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		shift := 1 + r.IntN(24)
		a := uint64(1 + r.Uint32N(1<<r.UintN(32)))
		b := uint64(1 + r.Uint32N(1<<r.UintN(32)))
		if r.IntN(4) == 0 { // just as large as fits
			k := r.IntN(min(periodBits-shift, 31))
			a, b = 1<<k, 1<<min(periodBits-shift-k, 31)
		}
		hi, lo := bits.Mul64(a, b)
		want := a == b || hi == 0 && lo <= 1<<(periodBits-shift)
		if got := packs([]uint64{min(a, b) << 32, max(a, b) << 32}, shift); a+b < 1<<32 && got != want {
			t.Fatalf("packs(%d, %d; %d) = %v, want %v", a, b, shift, got, want)
		}
	}
}
