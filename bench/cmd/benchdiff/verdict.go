// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/xdslb/xdslb/bench/record"
)

// The conditions for a significant increase of time. All three must hold.
const (
	// significance is the probability of such a difference between two runs of the same
	// program.
	significance = 1e-3
	// Smaller differences do not justify rejecting a commit, and can be caused by a different
	// code address alone.
	leastRatio = 1.10
	leastNs    = 4
)

// repeats is the number of consecutive measurements whose minimum is one sample.
const repeats = 3

// samples are the samples of one benchmark in one version, one for each round.
type samples struct {
	ns     []float64
	allocs []float64
}

// add adds a measurement of a round; rounds are in order. Processor time is preferred, if the
// benchmark reports it, since it does not include time of other processes.
func (s *samples) add(round int, r *record.Result) {
	ns, ok := r.Value("cpu-ns/op")
	if !ok {
		ns, _ = r.Value("ns/op")
	}
	allocs, _ := r.Value("allocs/op")
	if len(s.ns) == round {
		s.ns, s.allocs = append(s.ns, ns), append(s.allocs, allocs)
	}
	s.ns[round], s.allocs[round] = min(s.ns[round], ns), min(s.allocs[round], allocs)
}

// A verdict compares two versions of a benchmark.
type verdict struct {
	base, head             float64 // ns/op, lower deciles
	p                      float64 // of the hypothesis that head is not slower
	baseAllocs, headAllocs float64
	slower, allocates      bool
}

// judge compares two versions. A version is represented by its lower decile, since other load
// of the machine only increases times; the test uses all samples.
func judge(base, head *samples) verdict {
	v := verdict{
		base: quantile(base.ns, .1), head: quantile(head.ns, .1), p: slower(base.ns, head.ns),
		baseAllocs: slices.Min(base.allocs), headAllocs: slices.Min(head.allocs),
	}
	v.slower = v.p < significance && v.head > v.base*leastRatio && v.head > v.base+leastNs
	v.allocates = v.headAllocs > v.baseAllocs
	return v
}

// String describes the result.
func (v verdict) String() string {
	s := fmt.Sprintf("%7.1f → %7.1f ns  %+6.1f %%  p=%.4f  %g → %g allocs", v.base, v.head, 100*(v.head/v.base-1), v.p, v.baseAllocs, v.headAllocs)
	if v.slower {
		s += "  SLOWER"
	}
	if v.allocates {
		s += "  ALLOCATES"
	}
	return s
}

// quantile returns the q quantile of list, q in [0,1].
func quantile(list []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[int(q*float64(len(sorted)-1))]
}

// slower is the one-sided Mann-Whitney U test of b having larger values than a: the probability
// of values of b so far above a if both had the same distribution. It uses the normal
// approximation with corrections for ties and continuity, which is accurate from eight samples
// each.
func slower(a, b []float64) float64 {
	type sample struct {
		value float64
		ofB   bool
	}
	all := make([]sample, 0, len(a)+len(b))
	for _, v := range a {
		all = append(all, sample{v, false})
	}
	for _, v := range b {
		all = append(all, sample{v, true})
	}
	slices.SortFunc(all, func(x, y sample) int { return cmp.Compare(x.value, y.value) })
	rankSum, ties := 0., 0. // ranks of b; Σ t³−t over runs of t equal values
	for i := 0; i < len(all); {
		k := i
		for k < len(all) && all[k].value == all[i].value {
			k++
		}
		rank := float64(i+k+1) / 2 // the mean of i+1 … k
		t := float64(k - i)
		ties += t*t*t - t
		for ; i < k; i++ {
			if all[i].ofB {
				rankSum += rank
			}
		}
	}
	na, nb := float64(len(a)), float64(len(b))
	n := na + nb
	u := rankSum - nb*(nb+1)/2
	variance := na * nb / 12 * (n + 1 - ties/(n*(n-1)))
	if variance <= 0 {
		return 1 // all values are equal
	}
	z := (u - na*nb/2 - .5) / math.Sqrt(variance)
	return math.Erfc(z/math.Sqrt2) / 2
}
