// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"cmp"
	"math"
	"slices"
)

// A Report has the results of all runs of a seed, in JSON.
type Report struct {
	Go, GRPC, Machine, Commit, Date string

	Seed    uint64
	Seeded  bool // random choices of policies follow the seed
	Partial bool // interrupted
	Fleets  []Description
	Results []*Result
}

// A Description describes a Fleet in words.
type Description struct {
	Name, About string
	Bears       float64 // fraction of the RPCs that the bad servers can handle
	HasBad      bool
	HasZones    bool // of clients
	HasTrouble  bool // for all servers, temporarily
	HasKeys     bool // which servers cache
	Repeats     bool // RPCs may be sent more than once
	Few         bool // only some policies run
}

// Describe describes all fleets.
func Describe() []Description {
	var list []Description
	for _, f := range append(Fleets(), LoopbackFleet()) {
		d := Description{Name: f.Name, About: f.About, Bears: f.BadBears, HasBad: len(f.Bad) > 0, HasZones: f.ClientZones != nil, HasKeys: f.Keys > 0, HasTrouble: f.BadTo > 0 && f.Bad == nil, Repeats: f.Repeats, Few: f.Only != nil}
		list = append(list, d)
	}
	return list
}

// Of returns the results of a fleet in a mode, in the order of Policies.
func (r *Report) Of(mode Mode, long bool, fleet string) []*Result {
	order := map[string]int{}
	for i, p := range Policies() {
		order[p.String()] = i
	}
	var list []*Result
	for _, x := range r.Results {
		if x.Mode == mode && x.Long == long && x.Fleet == fleet {
			list = append(list, x)
		}
	}
	slices.SortStableFunc(list, func(a, b *Result) int { return cmp.Compare(order[a.Row()], order[b.Row()]) })
	return list
}

// Row returns the name of the result's policy with its implementation.
func (r *Result) Row() string { return string(r.Impl) + " " + r.Policy }

// Cell returns the run of the result.
func (r *Result) Cell(seed uint64) Cell { return Cell{r.Mode, r.Fleet, r.Row(), seed, r.Long} }

// A Verdict is the best of ours and the best of stock in a fleet.
type Verdict struct {
	Fleet       string
	Ours, Stock *Result
	// Worse are policies of ours that are significantly worse than the same policy of stock.
	Worse []string
}

// Lost reports whether stock's best is significantly better than ours: by goodput, or by the
// 99th percentile if goodput is equal.
func (v *Verdict) Lost() bool { return better(v.Stock, v.Ours) }

// better reports whether a is significantly better than b.
func better(a, b *Result) bool {
	if d := a.Goodput - b.Goodput; math.Abs(d) > .005 {
		return d > 0
	}
	return a.P99*(1+math.Hypot(a.Doubt, b.Doubt)) < b.P99
}

// Verdicts returns the verdicts of all fleets.
func (r *Report) Verdicts() []Verdict {
	var list []Verdict
	for _, f := range r.Fleets {
		v := Verdict{Fleet: f.Name}
		rows := r.Of(Channels, false, f.Name)
		for _, x := range rows {
			if x.Error != "" {
				continue
			}
			switch x.Impl {
			case Ours:
				v.Ours = best(v.Ours, x)
			case Stock:
				v.Stock = best(v.Stock, x)
				i := slices.IndexFunc(rows, func(o *Result) bool { return o.Impl == Ours && o.Policy == x.Policy && o.Error == "" })
				if i >= 0 && better(x, rows[i]) {
					v.Worse = append(v.Worse, x.Policy)
				}
			}
		}
		if v.Ours != nil && v.Stock != nil {
			list = append(list, v)
		}
	}
	return list
}

// Compare orders results, better ones first: by goodput, in steps of half a percent, then by
// the 99th percentile.
func Compare(a, b *Result) int {
	return cmp.Or(cmp.Compare(math.Round(200*b.Goodput), math.Round(200*a.Goodput)), cmp.Compare(a.P99, b.P99))
}

// best returns the result with the higher goodput, or with the lower 99th percentile if goodput
// is equal; a may be nil.
func best(a, b *Result) *Result {
	if a == nil || b.Goodput > a.Goodput+.005 || b.Goodput > a.Goodput-.005 && b.P99 < a.P99 {
		return b
	}
	return a
}
