// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"slices"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// uneven has a period of 31335 picks: more than a window, and short enough to hold.
var uneven = []uint32{5000, 0, 17000, 333, 1, 9001}

// newUneven returns a Schedule of uneven, in a window or of the whole period, and its
// sequence.
func newUneven(t *testing.T, longest uint64) (*Schedule, []int) {
	t.Helper()
	c := Config{Weights: uneven, Start: 1 << 60}
	s, err := c.schedule(longest, window)
	kit.Must(t, err)
	h, err := c.queue()
	kit.Must(t, err)
	return s, take(h.next, 10*window)
}

// A refiller that is stopped in the middle of a block does not block other goroutines. They use
// the picks made ahead, then fall back on picks with the right shares, and continue the
// sequence once the refiller resumes.
func TestParkedRefiller(t *testing.T) {
	for _, test := range []struct {
		name    string
		longest uint64
	}{{"window", 0}, {"period", 1 << 20}} {
		t.Run(test.name, func(t *testing.T) {
			s, want := newUneven(t, test.longest)
			for n := range 2 * window { // until half a window lies ahead
				s.At(uint64(n))
			}
			parked, release := make(chan struct{}), make(chan struct{})
			calls := 0
			s.buffer.testHook = func() {
				if calls++; calls == 10*block/4+3 {
					close(parked)
					<-release
				}
			}
			// The refiller draws tickets until it parks in its eleventh block.
			made := int(s.buffer.made.Load()-s.buffer.first) + 10*block
			next := made - window/2 + 1
			done := make(chan struct{})
			go func() {
				defer close(done)
				for n := 2 * window; n < next; n++ {
					if got := s.At(uint64(n)); got != want[n] {
						t.Errorf("At(%d) = %d, want %d", n, got, want[n])
					}
				}
			}()
			<-parked

			for ; next < made; next++ {
				if got := s.At(uint64(next)); got != want[next] {
					t.Fatalf("At(%d) = %d, want %d", next, got, want[next])
				}
			}
			if got := s.fallbacks(); got != 0 {
				t.Fatalf("%d fallbacks with picks left", got)
			}
			counts := make([]int, len(uneven))
			const starved = window
			for range starved {
				counts[s.At(uint64(next))]++
				next++
			}
			if got := s.fallbacks(); got != starved {
				t.Errorf("%d fallbacks of %d picks without a refiller", got, starved)
			}
			if s.buffer.stalled.Load() != s.buffer.made.Load() {
				t.Error("picks do not know that they need not wait")
			}
			for i, w := range uneven {
				if want := starved * int(w) / int(s.period()); counts[i] < want-4 || counts[i] > want+4 {
					t.Errorf("%d fell back on %d %d times, its share is %d", starved, i, counts[i], want)
				}
			}

			close(release)
			<-done
			s.At(uint64(next - 1))
			if s.buffer.stalled.Load() == s.buffer.made.Load() {
				t.Error("picks do not know that they may wait")
			}
			exact := 0
			for range 2 * window {
				before := s.fallbacks()
				got := s.At(uint64(next))
				if s.fallbacks() == before {
					exact++
					if got != want[next] {
						t.Fatalf("At(%d) = %d, want %d", next, got, want[next])
					}
				}
				next++
			}
			if exact < 2*window-10 {
				t.Errorf("%d of %d picks exact after the refiller is back", exact, 2*window)
			}
		})
	}
}

// A reader that comes back after its pick has been overwritten does not take another for it.
func TestLateReader(t *testing.T) {
	s, want := newUneven(t, 0)
	for n := range 3 * window {
		s.At(uint64(n))
	}
	oldest := int(s.table.Load().oldest.Load() - origin)
	if oldest < window || oldest > 3*window-window/2+block {
		t.Fatalf("oldest pick is %d after %d", oldest, 3*window)
	}
	for n := range 3 * window {
		before := s.fallbacks()
		got := s.At(uint64(n))
		if fell := s.fallbacks() > before; fell != (n < oldest) {
			t.Fatalf("At(%d), oldest %d: fell back: %v", n, oldest, fell)
		} else if !fell && got != want[n] {
			t.Fatalf("At(%d) = %d, want %d", n, got, want[n])
		} else if uneven[got] == 0 {
			t.Fatalf("At(%d) = %d, whose weight is zero", n, got)
		}
	}
	// A whole period is never overwritten.
	s, want = newUneven(t, 1<<20)
	for n := range want {
		s.At(uint64(n))
	}
	for n := range want {
		if got := s.At(uint64(n)); got != want[n] {
			t.Fatalf("At(%d) = %d, want %d", n, got, want[n])
		}
	}
	if got := s.fallbacks(); got != 0 {
		t.Errorf("%d fallbacks from a whole period", got)
	}
}

// Tickets may leave gaps of any size. Picks before a leap are discarded.
func TestLeap(t *testing.T) {
	for _, gap := range []int{1, block, window / 2, window - 1, window, window + 1, 3*window + 17} {
		s, want := newUneven(t, 0)
		var after []int
		for n := range 100 {
			s.At(uint64(n))
		}
		for n := 100 + gap; n < 100+gap+2*window; n++ {
			after = append(after, s.At(uint64(n)))
		}
		if want := want[100+gap : 100+gap+2*window]; !slices.Equal(after, want) {
			t.Errorf("gap %d: wrong picks after it", gap)
		}
		if got := s.fallbacks(); got != 0 {
			t.Errorf("gap %d: %d fallbacks", gap, got)
		}
		for n := 100; n < 100+gap; n++ {
			before := s.fallbacks()
			if got := s.At(uint64(n)); s.fallbacks() == before && got != want[n] {
				t.Fatalf("gap %d: At(%d) = %d, want %d", gap, n, got, want[n])
			}
		}
	}
}

// Right after a leap, old picks in the window are not mistaken for the picks that were skipped.
func TestLeapForgets(t *testing.T) {
	s, want := newUneven(t, 0)
	leap := 2*window + 1000
	s.At(uint64(leap))
	for n := range leap {
		before := s.fallbacks()
		got := s.At(uint64(n))
		if exact := s.fallbacks() == before; exact && got != want[n] {
			t.Fatalf("At(%d) = %d, want %d", n, got, want[n])
		}
	}
}

// A leap makes one pick fill no more than about a window, so that it costs no more than
// that; a whole period catches up in several.
func TestLeapInPeriod(t *testing.T) {
	s, want := newUneven(t, 1<<20)
	leap := 3 * window
	var exact int
	for n := leap; n < leap+1000; n++ {
		made := s.buffer.made.Load()
		before := s.fallbacks()
		got := s.At(uint64(n))
		if s.buffer.queue != nil && s.buffer.made.Load() > made+window+window/2+block {
			t.Fatalf("At(%d) made %d picks", n, s.buffer.made.Load()-made)
		}
		if s.fallbacks() == before {
			exact++
			if got != want[n] {
				t.Fatalf("At(%d) = %d, want %d", n, got, want[n])
			}
		} else if uneven[got] == 0 {
			t.Fatalf("At(%d) = %d, whose weight is zero", n, got)
		}
	}
	if exact < 990 {
		t.Errorf("%d of 1000 picks exact after a leap", exact)
	}
}

// While few picks have been made, and no goroutine makes more, picks fall back on these.
func TestFallBackOnFew(t *testing.T) {
	for _, longest := range []uint64{0, 1 << 20} {
		s, err := Config{Weights: []uint32{0, 5000, 17000, 9001}}.schedule(longest, window)
		kit.Must(t, err)
		s.buffer.busy.Store(true) // of a refiller that is off its CPU
		counts := make([]int, 4)
		for n := range uint64(initial + 4*small) {
			counts[s.At(n)]++
		}
		if got := s.fallbacks(); got != 4*small || counts[0] > 0 || counts[1] < small/2 {
			t.Errorf("longest %d: %d fallbacks, want %d; picks %v", longest, got, 4*small, counts)
		}
	}
}
