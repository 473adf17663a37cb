// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/montanaflynn/stats"
)

const (
	// limitRatio and limitNs are the smallest increase that counts. Both must be exceeded: the
	// address of the code alone changes operations of a few nanoseconds by more than 5 %.
	limitRatio = 1.05
	limitNs    = 1
	// window is the CPU time of a measurement, which determines the number of iterations. The
	// resolution of the system's account is a few microseconds.
	window = 20e6 // ns
	// repeats is the number of measurements in a process.
	repeats = 3
	// more is how many times as many rounds are made for benchmarks that may be slower.
	more = 4
)

// A sample is a measurement of a benchmark in a version, per iteration.
type sample struct{ ns, allocs float64 }

func (s sample) min(o sample) sample { return sample{min(s.ns, o.ns), min(s.allocs, o.allocs)} }

// versions are the base and the working tree.
const versions = 2

// A comparison compares benchmarks in two versions.
type comparison struct {
	rounds   int
	progress io.Writer
	// measure measures a benchmark in a version.
	measure func(which int, name string, iterations int64) (sample, error)
	rows    []*row
}

// row is a benchmark in both versions.
type row struct {
	name       string
	found      [versions]bool
	ns         [versions]stats.Float64Data // by round
	allocs     [versions]float64
	iterations int64
}

// add adds a benchmark of a version, and a first estimate of its cost, which is not used further.
func (c *comparison) add(which int, name string, s sample) {
	var r *row
	for _, known := range c.rows {
		if known.name == name {
			r = known
		}
	}
	if r == nil {
		r = &row{name: name, iterations: int64(window / max(s.ns, 1))}
		c.rows = append(c.rows, r)
	}
	r.found[which], r.allocs[which] = true, s.allocs
}

// run measures the benchmarks that both versions have, alternately. Afterwards it goes on with
// those for which all statistics increase, or all but one.
func (c *comparison) run() error {
	var active []*row
	for _, r := range c.rows {
		if r.found[0] && r.found[1] {
			active = append(active, r)
		}
	}
	if len(active) == 0 {
		return errors.New("no common benchmarks")
	}
	for round := 1; round <= more*c.rounds && len(active) > 0; round++ {
		if round <= c.rounds {
			fmt.Fprintf(c.progress, "benchdiff: round %d of %d\n", round, c.rounds)
		} else {
			fmt.Fprintf(c.progress, "benchdiff: additional round %d of at most %d for %d of %d benchmarks\n", round-c.rounds, (more-1)*c.rounds, len(active), len(c.rows))
		}
		for _, r := range active {
			for turn := range versions {
				which := (round + turn) % versions
				s, err := c.measure(which, r.name, r.iterations)
				if err != nil {
					return err
				}
				r.ns[which], r.allocs[which] = append(r.ns[which], s.ns), min(r.allocs[which], s.allocs)
			}
		}
		if round >= c.rounds {
			var slower []*row
			for _, r := range active {
				if r.increased() >= statistics-1 {
					slower = append(slower, r)
				}
			}
			active = slower
		}
	}
	return nil
}

// quantiles returns the minimum and the lower quartile of a version.
func (r *row) quantiles(which int) (q [2]float64) {
	least, err := r.ns[which].Min()
	if err != nil {
		return q // not measured
	}
	quartile, err := r.ns[which].Percentile(25)
	if err != nil {
		return q
	}
	return [...]float64{least, quartile}
}

// statistics are the minimum, the lower quartile, and the median ratio of a round.
const statistics = 3

// slower reports whether the working tree is slower by all statistics. The minimum is not sufficient, since a
// process is sometimes faster than all others, by the addresses of its memory. Other load that lasts for some
// rounds can increase the minimum and the lower quartile of one version. It changes the ratios of few rounds.
func (r *row) slower() bool { return r.increased() == statistics }

// increased returns how many statistics increase by more than the limits.
func (r *row) increased() (n int) {
	base, head := r.quantiles(0), r.quantiles(1)
	for i := range base {
		if head[i] > base[i]*limitRatio && head[i] > base[i]+limitNs {
			n++
		}
	}
	if r.ratio() > limitRatio {
		n++
	}
	return n
}

// ratio returns the median, over the rounds, of the working tree's time divided by that of the base.
func (r *row) ratio() float64 {
	var ratios stats.Float64Data
	for round, base := range r.ns[0] {
		ratios = append(ratios, r.ns[1][round]/base)
	}
	median, err := ratios.Median()
	if err != nil {
		return 1 // not measured
	}
	return median
}

// report prints the comparison, and reports whether the working tree is worse.
func (c *comparison) report(w io.Writer) (worse bool) {
	for _, r := range c.rows {
		switch {
		case !r.found[0]:
			fmt.Fprintf(w, "%-40s new\n", r.name)
			continue
		case !r.found[1]:
			fmt.Fprintf(w, "%-40s gone\n", r.name)
			continue
		}
		base, head := r.quantiles(0), r.quantiles(1)
		percent := func(i int) float64 { return 100 * (head[i]/base[i] - 1) }
		fmt.Fprintf(w, "%-40s %7.1f → %7.1f ns  %+6.1f %%  (of %2d: lower quartile %+6.1f %%, median of rounds %+6.1f %%)  %g → %g allocs",
			r.name, base[0], head[0], percent(0), len(r.ns[1]), percent(1), 100*(r.ratio()-1), r.allocs[0], r.allocs[1])
		if r.slower() {
			worse = true
			fmt.Fprint(w, "  SLOWER")
		}
		if r.allocs[1] > r.allocs[0] {
			worse = true
			fmt.Fprint(w, "  ALLOCATES")
		}
		fmt.Fprintln(w)
	}
	return worse
}
