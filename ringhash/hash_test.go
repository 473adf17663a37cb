// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"cmp"
	"math"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit/slow"
)

// Published by the authors of the functions, for the empty input and seed 0.
func TestSum(t *testing.T) {
	for fn, want := range map[Func]uint64{XXH64: 0xEF46DB3751D8E999, XXH3: 0x2D06800538D394C2} {
		if got := fn.Sum(""); got != want {
			t.Errorf("function %d: Sum(\"\") = %#x, want %#x", fn, got, want)
		}
	}
}

// Counting in text carries from 9 to 10 and on, from any start.
func TestPoints(t *testing.T) {
	starts := []uint32{0, 1, 8, 9, 10, 98, 99, 100, 989, 999, 9_999_990, math.MaxInt32 - 50}
	for _, fn := range funcs {
		for _, key := range []string{"", "k", "10.0.0.1:8080", strings.Repeat("9", 70)} {
			for _, from := range starts {
				if from > 1000 && fn == XXH3 {
					continue // the oracle counts from zero
				}
				dst := make([]entry, 25)
				fn.points(dst, key, 42, from)
				for k, got := range dst {
					n := int(from) + k
					if want := newEntry(slow.Point(key, n, fn == XXH64), 42); got != want {
						t.Fatalf("point %d of %q, function %d is %v, want %v", n, key, fn, got, want)
					}
				}
			}
		}
	}
}

func TestProbe(t *testing.T) {
	for _, hash := range []uint64{0, 1, math.MaxUint64, golden} {
		if got := Probe(hash, 0); got != hash {
			t.Errorf("Probe(%#x, 0) = %#x", hash, got)
		}
		seen := map[uint64]int{}
		for k := range 1000 {
			probe := Probe(hash, k)
			if first, ok := seen[probe]; ok {
				t.Fatalf("Probe(%#x, %d) = Probe(%#x, %d)", hash, k, hash, first)
			}
			seen[probe] = k
		}
	}
}

// The requests of one overloaded host spread over all other hosts by their weights, not only to
// its neighbors in the ring.
func TestProbeSpreadsOverflow(t *testing.T) {
	const n = 20
	rng := newRand(16)
	for _, fn := range funcs {
		r := mustNew(t, benchHosts(n), 100*n, 100*n, fn)
		hot := 3
		var got [n]float64
		var want [n]float64 // shares of the circle
		overflow := 0
		for range 400_000 {
			hash := rng.Uint64()
			host := r.Pick(hash)
			want[host]++
			if host == hot {
				got[r.Pick(Probe(hash, 1))]++
				overflow++
			}
		}
		for host := range n {
			g, w := got[host]/float64(overflow), want[host]/400_000
			if math.Abs(g-w) > 0.012 {
				t.Errorf("function %d: host %d takes %.3f of the overflow, want its share %.3f", fn, host, g, w)
			}
		}
	}
}

// Sorting is stable and right for hashes as bad as they come: constant, in one
// bucket, at the ends, or of few values.
func TestSortEntries(t *testing.T) {
	rng := newRand(7)
	draws := map[string]func() uint64{
		"uniform":   rng.Uint64,
		"zero":      func() uint64 { return 0 },
		"ones":      func() uint64 { return math.MaxUint64 },
		"ends":      func() uint64 { return -rng.Uint64N(2) },
		"truncated": func() uint64 { return rng.Uint64() &^ (1<<61 - 1) },
		"bucket":    func() uint64 { return 1<<60 + rng.Uint64N(50) },
	}
	for name, draw := range draws {
		for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 9, 100, 1000, partitionAbove + 3} {
			if n > 1000 && name != "uniform" {
				continue // to sort points in one bucket is quadratic, as documented
			}
			entries := makeEntries(n)
			want := make([]slowEntry, n)
			for i := range n {
				hash := draw()
				entries[i], want[i] = newEntry(hash, uint32(i)), slowEntry{hash, i}
			}
			slices.SortStableFunc(want, func(a, b slowEntry) int { return cmp.Compare(a.hash, b.hash) })
			sorted, start := sortEntries(entries)
			if again := bucketStarts(sorted); !slices.Equal(start, again) {
				t.Errorf("%s: starts of %d entries differ between sortEntries and bucketStarts", name, n)
			}
			r := &Ring{index: newIndex(sorted, start)}
			if !slices.Equal(entriesOf(t, r), want) {
				t.Errorf("%s: order of %d entries is wrong", name, n)
			}
			for _, hash := range probesOf(rng, want) {
				if got, want := position(r, hash), slowSeek(want, hash); got != want {
					t.Fatalf("%s: position(%#x) = %d, want %d of %d", name, hash, got, want, n)
				}
			}
		}
	}
}

// The compiler inlines picks into their callers. Ring.Pick and View.Pick are at 77 and 79 of
// its budget of 80.
func TestInlining(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the compiler")
	}
	if runtime.GOARCH == "386" {
		t.Skip("64-bit arithmetic and atomics weigh more in the inliner's budget on 386")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("there is no go command")
	}
	out, err := exec.Command(goTool, "build", "-gcflags=-m", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, name := range []string{
		"(*Ring).Pick", "(*Ring).Walk", "(*Ring).Len",
		"(*View).Pick", "(*Maglev).Pick", "Probe", "(*index).seek", "(*entry).hash", "newEntry", "mix",
	} {
		if !regexp.MustCompile("can inline " + regexp.QuoteMeta(name) + "\n").Match(out) {
			t.Errorf("%s is not inlined", name)
		}
	}
}
