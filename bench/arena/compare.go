// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// A Figure is a previously known 99th percentile, in milliseconds.
type Figure struct {
	Fleet, Row  string
	Least, Most float64
}

// Known returns the figures of the sketch: an independent simulation with a different model of
// the clients, with the same servers and RPCs in a minute after ten seconds.
//
// For overloaded servers the sketch's figures are too small: it omits the RPCs that have not
// ended by the end of the run, which are the slowest. Here their latency is the time until then.
func Known() []Figure {
	return []Figure{
		{homogeneous, "anchor random", 227, 227}, {homogeneous, "ours round_robin", 188, 188},
		{homogeneous, "ours least_request", 176, 189}, {homogeneous, "anchor oracle", 50, 50},
		{threeSlow, "anchor random", 35600, 35600}, {threeSlow, "ours round_robin", 35500, 35500},
		{threeSlow, "ours least_request", 3700, 4000}, {threeSlow, "anchor oracle", 53, 53},
		{fewClients, "anchor random", 220, 220}, {fewClients, "ours round_robin", 132, 132},
		{fewClients, "ours least_request", 100, 100}, {fewClients, "anchor oracle", 49, 49},
		{fewAndSlow, "ours round_robin", 35200, 35200}, {fewAndSlow, "ours least_request", 400, 400},
	}
}

// agreement is the relative deviation within which figures agree.
const agreement = .15

// Apart returns the relative deviation of a value from the figure.
func (f *Figure) Apart(v float64) float64 {
	switch {
	case v < f.Least:
		return v/f.Least - 1
	case v > f.Most:
		return v/f.Most - 1
	}
	return 0
}

// writeCalibration compares kernels with the sketch, and channels with kernels.
func (r *Report) writeCalibration(b *strings.Builder) {
	var lines [][]string
	for _, k := range Known() {
		long := find(r.Of(Kernels, true, k.Fleet), k.Row)
		if long == nil {
			continue
		}
		sketch := Millis(k.Least)
		if k.Most > k.Least {
			sketch += "–" + Millis(k.Most)
		}
		line := []string{k.Fleet, k.Row, sketch, Millis(long.P99), apart(k.Apart(long.P99), 0)}
		if short, real := find(r.Of(Kernels, false, k.Fleet), k.Row), find(r.Of(Channels, false, k.Fleet), k.Row); short != nil && real != nil {
			line = append(line, Millis(short.P99), Millis(real.P99), apart(real.P99/short.P99-1, math.Hypot(real.Doubt, short.Doubt)))
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprintln(b, "calibration: p99 of the sketch and of kernels in a minute; of kernels and of channels in the time of the published runs")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  fleet\tpolicy\tsketch\tkernels\t\tkernels\tchannels\t")
	for _, l := range lines {
		fmt.Fprintf(t, "  %s\n", strings.Join(l, "\t"))
	}
	_ = t.Flush() // writes to b cannot fail
	b.WriteByte('\n')
}

// apart formats a difference, and marks it if it exceeds both the allowance and the confidence
// interval.
func apart(d, doubt float64) string {
	text := fmt.Sprintf("%+.0f %%", 100*d)
	if math.Abs(d) > max(agreement, doubt) {
		text += " !"
	}
	return text
}

func find(list []*Result, row string) *Result {
	i := slices.IndexFunc(list, func(r *Result) bool { return r.Row() == row && r.Error == "" })
	if i < 0 {
		return nil
	}
	return list[i]
}

// writeLoopback compares the order of policies over loopback with that in virtual time.
func (r *Report) writeLoopback(b *strings.Builder) {
	name := LoopbackFleet().Name
	virtual, real := r.Of(Channels, false, name), r.Of(Loopback, false, name)
	if len(virtual) == 0 || len(real) == 0 {
		return
	}
	fmt.Fprintf(b, "%s: %s\n", name, LoopbackFleet().About)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tp50 in virtual time\tin real time\tp90 in virtual time\tin real time\tp99 in virtual time\tin real time\t")
	var x, y []float64
	for _, v := range virtual {
		l := find(real, v.Row())
		if l == nil || v.Error != "" {
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s ± %.0f %%\t%s ± %.0f %%\t\n", v.Row(), Millis(v.P50), Millis(l.P50), Millis(v.P90), Millis(l.P90), Millis(v.P99), 100*v.Doubt, Millis(l.P99), 100*l.Doubt)
		x, y = append(x, v.P90), append(y, l.P90)
	}
	_ = t.Flush() // writes to b cannot fail
	fmt.Fprintf(b, "  rank correlation of the 90th percentiles, in which a busy machine shows less (Spearman): %.2f\n\n", RankCorrelation(x, y))
}

// RankCorrelation returns Spearman's rank correlation: 1 if both lists have the same order.
func RankCorrelation(x, y []float64) float64 {
	n := float64(len(x))
	if n < 2 {
		return math.NaN()
	}
	rx, ry := ranks(x), ranks(y)
	sum, sx, sy := 0., 0., 0.
	for i := range rx {
		a, b := rx[i]-(n+1)/2, ry[i]-(n+1)/2
		sum, sx, sy = sum+a*b, sx+a*a, sy+b*b
	}
	return sum / math.Sqrt(sx*sy)
}

// ranks returns the ranks of values; ties share a rank.
func ranks(v []float64) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		for k := range v {
			switch {
			case v[k] < v[i]:
				out[i]++
			case v[k] == v[i]:
				out[i] += .5
			}
		}
		out[i] += .5
	}
	return out
}
