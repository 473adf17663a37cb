// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// A tally counts the values that one aspect had in a sample.
type tally map[string]int

func (t tally) total() (n int) {
	for _, c := range t {
		n += c
	}
	return n
}

// String is the tally as text, the most frequent values first.
func (t tally) String() string {
	keys := slices.SortedFunc(maps.Keys(t), func(a, b string) int { return cmp.Or(cmp.Compare(t[b], t[a]), cmp.Compare(a, b)) })
	var b strings.Builder
	for i, k := range keys {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == 8 {
			fmt.Fprintf(&b, "… (%d values)", len(keys))
			break
		}
		fmt.Fprintf(&b, "%d× %s", t[k], k)
	}
	return b.String()
}

// A sample is the observations of one caller on one side.
type sample struct {
	aspects map[string]tally
	errs    tally // texts of errors
}

func newSample() *sample {
	s := &sample{aspects: map[string]tally{}, errs: tally{}}
	for _, a := range aspects {
		s.aspects[a] = tally{}
	}
	return s
}

func (s *sample) add(observation map[string]string, err error) {
	for a, v := range observation {
		if a != aspectBackend {
			s.aspects[a][v]++
			continue
		}
		// Each attempt counts: which backend has the last of three is no accident
		// where there are three of them, in turn.
		for b := range strings.SplitSeq(v, ",") {
			s.aspects[a][b]++
		}
	}
	if err != nil {
		s.errs[err.Error()]++
	}
}

// ok reports whether all RPCs succeeded.
func (s *sample) ok() bool {
	return len(s.errs) == 0
}

// distance returns the significance of the difference between two tallies in standard
// deviations: it is χ² of the table, without values that are too rare for that, by the
// approximation of Wilson and Hilferty. About 2.3 is one in a hundred, 5 less than one in a
// million.
func distance(a, b tally) float64 {
	na, nb := float64(a.total()), float64(b.total())
	if na == 0 || nb == 0 {
		return 0
	}
	var chi2, restA, restB float64
	cells := 0
	add := func(x, y float64) {
		both := (x + y) / (na + nb)
		ea, eb := both*na, both*nb
		chi2 += (x-ea)*(x-ea)/ea + (y-eb)*(y-eb)/eb
		cells++
	}
	values := map[string]bool{}
	for v := range a {
		values[v] = true
	}
	for v := range b {
		values[v] = true
	}
	for v := range values {
		x, y := float64(a[v]), float64(b[v])
		if (x+y)/(na+nb)*min(na, nb) < 3 {
			restA, restB = restA+x, restB+y
			continue
		}
		add(x, y)
	}
	if restA+restB > 0 {
		add(restA, restB)
	}
	df := float64(cells - 1)
	if df < 1 {
		return 0
	}
	return (math.Cbrt(chi2/df) - (1 - 2/(9*df))) / math.Sqrt(2/(9*df))
}

// A difference is something that the two sides do not have in common.
type difference struct {
	worlds     []*world // all states so far
	world      *world   // the latest
	noListener bool     // it was deleted, and is not back
	caller     *caller  // nil if it is not about RPCs
	aspect     string
	stock      string
	ours       string
	samples    []*sample // of stock and ours; nil if it is not about samples
}

// errs are the texts of a side's errors: 0 is stock, 1 ours.
func (d *difference) errs(side int) tally {
	if d.samples == nil {
		return nil
	}
	return d.samples[side].errs
}

// Aspects that do not belong to a caller's RPCs.
const (
	aspectAnswer     = "what was rejected"
	aspectNames      = "subscription"
	aspectBackground = "RPCs lost during a healthy update"
)

func (d *difference) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", d.aspect)
	if d.caller != nil {
		fmt.Fprintf(&b, " of %v", d.caller)
	}
	fmt.Fprintf(&b, "\n    stock: %s\n    ours:  %s", d.stock, d.ours)
	if errs := d.errs(0); len(errs) > 0 {
		fmt.Fprintf(&b, "\n    stock's errors: %v", errs)
	}
	if errs := d.errs(1); len(errs) > 0 {
		fmt.Fprintf(&b, "\n    our errors: %v", errs)
	}
	return b.String()
}
