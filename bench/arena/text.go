// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Write writes the report as text.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	if r.Partial {
		b.WriteString("INTERRUPTED: not all runs are here.\n\n")
	}
	for _, f := range r.Fleets {
		if f.Name != LoopbackFleet().Name {
			table(&b, f, slices.Concat(r.Of(Channels, false, f.Name), r.Of(Kernels, false, f.Name)))
		}
	}
	r.writeVerdicts(&b)
	r.writeCalibration(&b)
	r.writeLoopback(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// table has a row for each policy of a fleet.
func table(b *strings.Builder, f Description, list []*Result) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "%s: %s\n", f.Name, f.About)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	bad := ""
	if f.HasBad {
		bad = "bad share\t"
	}
	fmt.Fprintf(t, "policy\tp50 ms\tp99\t±\tp99.9\tregret\tgoodput\t%smax/mean\textra\tCPU µs\t\n", bad)
	for _, r := range list {
		row := r.Row()
		if r.Mode == Kernels {
			row += ", kernel"
		}
		if r.Error != "" {
			fmt.Fprintf(t, "%s\t%s\t\n", row, r.Error)
			continue
		}
		if f.HasBad {
			bad = percent(r.BadShare) + "\t"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.0f %%\t%s\t%.3f\t%s\t%s%.2f\t%.2f\t%.0f\t\n", row, Millis(r.P50), Millis(r.P99), 100*r.Doubt, Millis(r.P999),
			r.Regret, percent(r.Goodput), bad, r.MaxMean, r.Extra, r.CPU)
	}
	_ = t.Flush() // b takes everything
	if f.HasBad && f.Bears > 0 {
		fmt.Fprintf(b, "  the bad servers can bear %s\n", percent(f.Bears))
	}
	b.WriteByte('\n')
}

// Millis formats milliseconds in three digits or so.
func Millis(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func percent(v float64) string { return fmt.Sprintf("%.2f %%", 100*v) }

func (r *Report) writeVerdicts(b *strings.Builder) {
	list := r.Verdicts()
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(b, "best of ours and of stock")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, v := range list {
		how := "by chance"
		switch {
		case v.Lost():
			how = "LOST"
		case better(v.Ours, v.Stock):
			how = "won"
		}
		if len(v.Worse) > 0 {
			how += "; worse than the same of stock: " + strings.Join(v.Worse, ", ")
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\n", v.Fleet, v.Ours.Policy, Millis(v.Ours.P99), v.Stock.Policy, Millis(v.Stock.P99), how)
	}
	_ = t.Flush() // b takes everything
	b.WriteByte('\n')
}

// columns are the rows that a table of all fleets has columns of.
var columns = []string{
	"anchor random", "anchor oracle", "stock round_robin", "ours round_robin",
	"stock least_request", "ours least_request", "stock client_wrr", "ours client_wrr",
	"anchor peak_ewma", "ours least_latency",
}

// Markdown writes a table of the 99th percentiles in all fleets. What only kernels
// have played is in italics.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| fleet |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", strings.TrimPrefix(c, string(Anchor)+" "))
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(columns)) + "\n")
	for _, f := range r.Fleets {
		if f.Name == LoopbackFleet().Name {
			continue
		}
		channels, kernels := r.Of(Channels, false, f.Name), r.Of(Kernels, false, f.Name)
		fmt.Fprintf(&b, "| **%s**: %s |", f.Name, f.About)
		for _, c := range columns {
			x, emphasis := find(channels, c), ""
			if x == nil {
				x, emphasis = find(kernels, c), "*"
			}
			if x == nil {
				b.WriteString(" |")
				continue
			}
			fmt.Fprintf(&b, " %s%s%s%s |", emphasis, Millis(x.P99), succeeded(x), emphasis)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// succeeded is the goodput where it is worth a word.
func succeeded(r *Result) string {
	if r.Goodput > .9995 {
		return ""
	}
	return fmt.Sprintf(" (%.1f %%)", 100*r.Goodput)
}
