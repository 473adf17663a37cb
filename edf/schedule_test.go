// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/kit/slow"
)

// Pick Start+k belongs to ticket Base+k, wherever both begin, also for tickets from before
// Base as far as the buffer holds the whole period.
func TestAt(t *testing.T) {
	const picks = 300
	r := rand.New(rand.NewPCG(7, 7))
	for _, weights := range randomSets(scaled(500), 20) {
		for _, base := range []uint64{0, 1, 1 << 20, 1<<63 - 100, 1 << 63, math.MaxUint64 - 50, r.Uint64()} {
			c := Config{Weights: weights, Start: r.Uint64(), Base: base}
			s, err := c.Schedule()
			kit.Must(t, err)
			o := slow.NewEDF(weights)
			o.Skip(c.Start % s.period())
			want := o.Take(picks)
			for k, want := range want {
				if got := s.At(base + uint64(k)); got != want {
					t.Fatalf("%+v: At(%d) = %d, want %d", c, base+uint64(k), got, want)
				}
			}
			if s.period() <= window {
				for k := range uint64(picks) {
					if got, want := s.At(base+k-s.period()), want[k]; got != want {
						t.Fatalf("%+v: At(%d) = %d, want %d", c, base+k-s.period(), got, want)
					}
				}
			}
			if got := s.fallbacks(); got != 0 {
				t.Fatalf("%+v: %d fallbacks", c, got)
			}
		}
	}
}

// EDF-13: equal weights take no memory.
func TestEqualWeights(t *testing.T) {
	s, err := Config{Weights: slices.Repeat([]uint32{1 << 20}, 1000), Start: 998}.Schedule()
	kit.Must(t, err)
	if got := take(draw(s).next, 4); s.buffer != nil || !slices.Equal(got, []int{998, 999, 0, 1}) {
		t.Errorf("1000 equal weights from 998 on: picks %v with a buffer: %v, want [998 999 0 1] without", got, s.buffer != nil)
	}
}

// The modulus is exact from one end of the range to the other, for 1 as well.
func TestPosition(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 200_000 {
		s := Schedule{modulus: 1 + r.Uint64N(1<<r.UintN(64))}
		if s.modulus > 1<<32 {
			s.modulus = endless
		}
		s.inverse = math.MaxUint64 / s.modulus
		p := r.Uint64()
		for _, p := range []uint64{p, p / s.modulus * s.modulus, p/s.modulus*s.modulus - 1, 0, 1, math.MaxUint64} {
			if got, want := s.position(p), p%s.modulus; got != want {
				t.Fatalf("position(%d) modulo %d = %d, want %d", p, s.modulus, got, want)
			}
		}
	}
}

// Indexes take 16 bits up to 65536 endpoints and 32 beyond.
func TestManyEndpoints(t *testing.T) {
	for _, n := range []int{1 << 16, 1<<16 + 1} {
		weights := make([]uint32, n)
		weights[0], weights[n-2], weights[n-1] = 3, 2, 5
		o := slow.NewEDF([]uint32{3, 2, 5})
		var want []int
		for _, i := range o.Take(20_000) {
			want = append(want, []int{0, n - 2, n - 1}[i])
		}
		forEachImpl(t, Config{Weights: weights}, func(t *testing.T, next func() int) {
			if got := take(next, len(want)); !slices.Equal(got, want) {
				t.Errorf("%d endpoints: wrong sequence", n)
			}
		})
	}
}

// A table begins small. A period that takes more than a window is held as well, if it is short
// enough, and is then no longer in need of its queue.
func TestBufferKind(t *testing.T) {
	oneGoroutine(t)
	for _, test := range []struct {
		weights []uint32
		slides  bool
		words   int
		atOnce  bool
	}{
		{weights: []uint32{3, 4}, words: block / 4, atOnce: true},
		{weights: []uint32{3, initial - 3}, words: initial / 4, atOnce: true},
		{weights: []uint32{1, initial}, words: (initial + block) / 4},
		{weights: []uint32{1, window - 1}, words: window / 4},
		{weights: []uint32{1, window}, words: (window + block) / 4},
		{weights: []uint32{1, 1<<16 - 1}, words: 1 << 14},
		{weights: []uint32{1, 1 << 16}, slides: true, words: window / 4},
		{weights: append(make([]uint32, 1<<10), 1, 1<<19-1), words: 1 << 17},
		{weights: append(make([]uint32, 1<<10), 1, 1<<19), slides: true, words: window / 4},
		{weights: append(make([]uint32, 1<<16-2), 1, 1<<20), slides: true, words: window / 4},
		{weights: append(make([]uint32, 1<<16-1), 1, 1<<20), words: (1<<20 + block) / 2},
		{weights: append(make([]uint32, 1<<16-1), 1, 1<<21), slides: true, words: window / 2},
	} {
		s, err := Config{Weights: test.weights}.Schedule()
		kit.Must(t, err)
		if n, bytes := len(s.table.Load().words), 8; n*bytes > 4*small {
			t.Errorf("period %d of %d endpoints: begins with %d bytes", s.period(), len(test.weights), n*bytes)
		}
		if atOnce := s.buffer.queue == nil; atOnce != test.atOnce {
			t.Errorf("period %d: complete at once: %v, want %v", s.period(), atOnce, test.atOnce)
		}
		for n := range s.period() {
			s.At(n)
		}
		if slides, n := s.buffer.end == endless, len(s.table.Load().words); slides != test.slides || n != test.words {
			t.Errorf("period %d of %d endpoints: slides %v in %d words, want %v in %d",
				s.period(), len(test.weights), slides, n, test.slides, test.words)
		}
		if kept := s.buffer.queue != nil; kept != test.slides {
			t.Errorf("period %d: keeps its heap after a period: %v, want %v", s.period(), kept, test.slides)
		}
		if got := s.fallbacks(); got != 0 {
			t.Errorf("period %d: %d fallbacks", s.period(), got)
		}
	}
}

// schedules are the kinds of Schedule that hold a buffer, with the weights that make them.
var schedules = []struct {
	name    string
	weights []uint32
	longest uint64
	window  uint64
}{
	{"complete", []uint32{5, 0, 17, 3, 1, 9}, 1 << 20, window},
	{"period", []uint32{5000, 0, 17000, 333, 1, 9001}, 1 << 20, window},
	{"window", []uint32{5000, 0, 17000, 333, 1, 9001}, 0, window},
	{"small window", []uint32{5000, 0, 17000, 333, 1, 9001}, 0, 2 * block},
}

// Goroutines that draw concurrently share the sequence: together they get the picks that a
// single one would get, except for picks that are counted as fallbacks.
func TestConcurrentNext(t *testing.T) {
	const goroutines = 8
	for _, test := range schedules {
		t.Run(test.name, func(t *testing.T) {
			c := Config{Weights: test.weights, Start: 4321, Base: 99}
			s, err := c.schedule(test.longest, test.window)
			kit.Must(t, err)
			d, picks := draw(s), scaled(40_000)
			got := make([]atomic.Int64, len(c.Weights))
			var done sync.WaitGroup
			for range goroutines {
				done.Go(func() {
					for range picks {
						got[d.next()].Add(1)
					}
				})
			}
			done.Wait()
			var off int64
			h, _ := c.queue()
			for range goroutines * picks {
				got[h.next()].Add(-1)
			}
			for i := range got {
				off += max(got[i].Load(), -got[i].Load())
			}
			// A fallback is one pick too few and one too many.
			if fallbacks := s.fallbacks(); off > 2*int64(fallbacks) || test.name == "complete" && fallbacks > 0 {
				t.Errorf("counts differ by %d, with %d fallbacks", off, fallbacks)
			}
		})
	}
}

// No pick is torn or passes for exact when it is not: tickets are drawn at random from
// around the small window's edges by goroutines that hold each other up, and each pick that
// differs from the sequence must have been counted.
func TestConcurrentEdges(t *testing.T) {
	const goroutines = 8
	c := Config{Weights: []uint32{5000, 0, 17000, 333, 1, 9001}}
	s, err := c.schedule(0, 2*block)
	kit.Must(t, err)
	picks := uint64(scaled(60_000))
	want := make([]int, goroutines*picks+4*block)
	h, _ := c.queue()
	for i := range want {
		want[i] = h.next()
	}
	var front, wrong atomic.Uint64
	var done sync.WaitGroup
	for g := range uint64(goroutines) {
		done.Go(func() {
			r := rand.New(rand.NewPCG(g, g))
			for range picks {
				ticket := front.Add(1) - 1
				ticket += r.Uint64N(2*block) - min(ticket, r.Uint64N(4*block))
				if got := s.At(ticket); got != want[ticket] {
					wrong.Add(1)
					if got < 0 || got >= len(c.Weights) || c.Weights[got] == 0 {
						t.Errorf("At(%d) = %d", ticket, got)
						return
					}
				}
				if ticket%37 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	done.Wait()
	if wrong, fallbacks := wrong.Load(), s.fallbacks(); wrong > fallbacks || fallbacks == 0 {
		t.Errorf("%d picks differ from the sequence, %d were fallbacks", wrong, fallbacks)
	}
}

func TestPlace(t *testing.T) {
	// A period of 4; the largest start is in place 3.
	s, err := Config{Weights: []uint32{4, 2, 2}, Start: math.MaxUint64 - 2, Base: 100}.Schedule()
	kit.Must(t, err)
	for ticket, want := range map[uint64]uint64{100: 1, 101: 2, 103: 0, 1<<40 + 100: 1, 99: 0, 98: 3, 90: 3} {
		if got := s.Place(ticket); got != want {
			t.Errorf("Place(%d) = %d, want %d", ticket, got, want)
		}
	}
}

// Nothing that a pick calls allocates, refills and seeks after a leap included.
func TestNoAllocs(t *testing.T) {
	oneGoroutine(t)
	weights := []uint32{5000, 0, 17000, 333, 1, 9001}
	h, _ := Config{Weights: weights}.queue()
	wide, _ := Config{Weights: []uint32{1<<31 - 1, 1 << 31}}.queue()
	equal, _ := Config{Weights: []uint32{1, 1, 1}}.Schedule()
	period, _ := Config{Weights: weights}.Schedule()
	slides, _ := Config{Weights: weights}.schedule(0, window)
	var ticket uint64
	for name, f := range map[string]func(){
		"queue.next":          func() { h.next() },
		"queue.next, wide":    func() { wide.next() },
		"queue.seek":          func() { h.seek(12345) },
		"Schedule.At, equal":  func() { ticket++; equal.At(ticket) },
		"Schedule.At, period": func() { ticket++; period.At(ticket) },
		"Schedule.At, window": func() { ticket++; slides.At(ticket) },
		"Schedule.At, gaps":   func() { ticket += 1 << 20; slides.At(ticket) },
	} {
		if got := testing.AllocsPerRun(2*window, f); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}

// T-EDF-2: a random start makes each endpoint the first pick with the probability of its
// share, so that clients which start together do not pile up on one. 100 000 fresh starts,
// by Pearson's chi-square against a critical value of p = 0.001.
func TestRandomStart(t *testing.T) {
	oneGoroutine(t)
	const starts = 100_000
	for _, test := range []struct {
		weights  []uint32
		critical float64
	}{
		{[]uint32{1, 3}, 10.83},
		{[]uint32{1, 99}, 10.83},
		{[]uint32{10, 20, 0, 5, 40, 1, 24}, 20.52},
	} {
		c := Config{Weights: test.weights}
		var sum float64
		for _, w := range c.Weights {
			sum += float64(w)
		}
		for _, impl := range impls {
			if impl.name == "window" {
				continue // like heap, from which it is filled, but slow to make
			}
			r := rand.New(rand.NewPCG(31378, 1))
			picks := make([]float64, len(c.Weights))
			for range starts {
				c.Start = r.Uint64()
				next, err := impl.new(c)
				kit.Must(t, err)
				picks[next()]++
			}
			var chi float64
			for i, w := range c.Weights {
				if want := starts * float64(w) / sum; want > 0 {
					chi += (picks[i] - want) * (picks[i] - want) / want
				} else if picks[i] > 0 {
					t.Errorf("%s: %d was picked, whose weight is zero", impl.name, i)
				}
			}
			if chi > test.critical {
				t.Errorf("%s: weights %v: first picks %v: chi-square %.2f, critical %.2f", impl.name, c.Weights, picks, chi, test.critical)
			}
		}
	}
}

var raceEnabled bool

// scaled returns how often to repeat something: n, or a tenth where that takes ten times
// as long.
func scaled(n int) int {
	if raceEnabled || testing.Short() {
		return max(1, n/10)
	}
	return n
}

// oneGoroutine skips a test that takes long under the race detector and has nothing to race.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine only")
	}
}

func TestInvalidWeights(t *testing.T) {
	for _, test := range []struct {
		weights []uint32
		want    string
	}{
		{nil, "none of 0 is above zero"},
		{make([]uint32, 3), "none of 3 is above zero"},
		{[]uint32{1 << 31, 1 << 31}, "sum 4294967296 is more than 4294967295"},
		{slices.Repeat([]uint32{1<<32 - 1}, 5), "sum 21474836475 is more than 4294967295"},
		{make([]uint32, 1<<24+1), "16777217 endpoints, more than 16777216"},
	} {
		if s, err := (Config{Weights: test.weights}).Schedule(); s != nil || err == nil || err.Error() != "edf: weights: "+test.want {
			t.Errorf("Schedule of %d weights = %v, %v, want error %q", len(test.weights), s, err, test.want)
		}
	}
}

// Invalid changes leave the Schedule usable.
func TestReweighErrors(t *testing.T) {
	for _, weights := range [][]uint32{{3, 4, 1}, {5, 5, 5}} {
		s, err := Config{Weights: weights}.Schedule()
		kit.Must(t, err)
		for _, test := range []struct {
			weights []uint32
			want    string
		}{
			{[]uint32{1, 2}, "edf: weights: 2 endpoints, want 3 as before"},
			{nil, "edf: weights: 0 endpoints, want 3 as before"},
			{[]uint32{0, 0, 0}, "none of 3 is above zero"},
		} {
			if next, err := s.Reweigh(test.weights, 0); next != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Reweigh(%v) of %v = %v, %v, want error %q", test.weights, weights, next, err, test.want)
			}
		}
		for want, changes := range map[string][]Change{
			"endpoint 3 is out of range of 3":  {{0, 1}, {3, 1}},
			"endpoint -1 is out of range of 3": {{-1, 1}},
			"none of 3 is above zero":          {{0, 0}, {1, 0}, {2, 0}},
			" is more than 4294967295":         {{0, 1 << 31}, {1, 1 << 31}},
		} {
			if next, err := s.ReweighSome(changes, 0); next != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("ReweighSome(%v) of %v = %v, %v, want error %q", changes, weights, next, err, want)
			}
		}
		if got, want := take(draw(s).next, 6), slow.NewEDF(weights).Take(6); !slices.Equal(got, want) {
			t.Errorf("after invalid changes of %v: picks %v, want %v", weights, got, want)
		}
	}
}

// The largest sum is valid (T-EDS-3), and one endpoint may have all of it.
func TestLargestWeights(t *testing.T) {
	for _, weights := range [][]uint32{{1<<32 - 1}, {1<<31 - 1, 1 << 31}, {1, 1<<32 - 2}} {
		forEachImpl(t, Config{Weights: weights}, func(t *testing.T, next func() int) {
			if got, want := take(next, 300), slow.NewEDF(weights).Take(300); !slices.Equal(got, want) {
				t.Errorf("weights %v: got %v, want %v", weights, got, want)
			}
		})
	}
}
