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

// table writes a row for each policy of a fleet.
func table(b *strings.Builder, f Description, list []*Result) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "%s: %s\n", f.Name, f.About)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	columns := f.columns()
	fmt.Fprint(t, "policy\t")
	for _, c := range columns {
		fmt.Fprintf(t, "%s\t", c.name)
	}
	fmt.Fprintln(t)
	for _, r := range list {
		row := r.Row()
		if r.Mode == Kernels {
			row += ", kernel"
		}
		fmt.Fprintf(t, "%s\t", row)
		if r.Error != "" {
			fmt.Fprintf(t, "%s\t\n", r.Error)
			continue
		}
		for _, c := range columns {
			fmt.Fprintf(t, "%s\t", c.of(r))
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // writes to b cannot fail
	if f.HasBad && f.Bears > 0 {
		fmt.Fprintf(b, "  the bad servers can bear %s\n", percent(f.Bears))
	}
	b.WriteByte('\n')
}

// A column is a figure of a table.
type column struct {
	name string
	of   func(*Result) string
}

// columns returns the columns of the table of a fleet.
func (f *Description) columns() []column {
	decimals := func(n int, of func(*Result) float64) func(*Result) string {
		return func(r *Result) string { return fmt.Sprintf("%.*f", n, of(r)) }
	}
	list := []column{
		{"p50 ms", func(r *Result) string { return Millis(r.P50) }},
		{"p99", func(r *Result) string { return Millis(r.P99) }},
		{"±", func(r *Result) string { return fmt.Sprintf("%.0f %%", 100*r.Doubt) }},
		{"p99.9", func(r *Result) string { return Millis(r.P999) }},
		{"regret", decimals(3, func(r *Result) float64 { return r.Regret })},
		{"goodput", func(r *Result) string { return percent(r.Goodput) }},
	}
	list = append(list, f.special()...)
	return append(list,
		column{"max/mean", decimals(2, func(r *Result) float64 { return r.MaxMean })},
		column{"extra", decimals(2, func(r *Result) float64 { return r.Extra })},
		column{"CPU µs", decimals(0, func(r *Result) float64 { return r.CPU })},
	)
}

// special returns the columns that are relevant to some fleets only.
func (f *Description) special() (list []column) {
	if f.HasBad {
		list = append(list, column{"bad share", func(r *Result) string { return percent(r.BadShare) }})
	}
	if f.HasZones {
		list = append(list, column{"other zone", func(r *Result) string { return percent(r.Foreign) }})
	}
	if f.HasKeys {
		list = append(list, column{"hits", func(r *Result) string { return percent(r.Hits) }}, column{"worst second", func(r *Result) string { return percent(r.WorstHits) }})
	}
	if f.Repeats {
		list = append(list, column{"attempts", func(r *Result) string { return fmt.Sprintf("%.3f", r.Attempts) }})
	}
	if f.HasTrouble {
		list = append(list, column{"delivered", func(r *Result) string { return percent(r.Delivered) }}, column{"recovery", recovery})
	}
	return list
}

func recovery(r *Result) string {
	if r.Recovery < 0 {
		return "never"
	}
	return fmt.Sprintf("%.0f s", r.Recovery)
}

// Millis formats milliseconds with about three digits.
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
	_ = t.Flush() // writes to b cannot fail
	b.WriteByte('\n')
}

// Rows of the table of all fleets, which become columns there.
var tabled = []string{
	"anchor random", "anchor oracle", "stock round_robin", "ours round_robin",
	"stock least_request", "ours least_request", "stock client_wrr", "ours client_wrr",
	"anchor peak_ewma", "ours least_latency", "ours prequal", "ours prequal, synchronous",
}

// Markdown writes two tables: the 99th percentiles of the main policies in all fleets, with
// results of kernels in italics; and the rows of special policies and fleets.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| fleet |")
	for _, c := range tabled {
		fmt.Fprintf(&b, " %s |", strings.TrimPrefix(c, string(Anchor)+" "))
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(tabled)) + "\n")
	usual := slices.DeleteFunc(slices.Clone(r.Fleets), func(f Description) bool { return f.Few || f.Name == LoopbackFleet().Name })
	for _, f := range usual {
		channels, kernels := r.Of(Channels, false, f.Name), r.Of(Kernels, false, f.Name)
		fmt.Fprintf(&b, "| **%s**: %s |", f.Name, f.About)
		for _, c := range tabled {
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
	b.WriteString("\n| fleet | policy | p50 | p99 | p99.9 | |\n|---|---|---:|---:|---:|---|\n")
	for _, f := range r.Fleets {
		f.markdownRows(&b, r.Of(Channels, false, f.Name))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdownRows writes the rows of a fleet that are not in the table of all fleets.
func (f *Description) markdownRows(b *strings.Builder, list []*Result) {
	name := fmt.Sprintf("**%s**", f.Name)
	if f.Few {
		name += ": " + f.About
	}
	for _, x := range list {
		if x.Error != "" || !f.Few && slices.Contains(tabled, x.Row()) {
			continue
		}
		var notes []string
		if x.Goodput < .9995 {
			notes = append(notes, fmt.Sprintf("%.1f %% succeed", 100*x.Goodput))
		}
		for _, c := range f.special() {
			notes = append(notes, c.name+" "+c.of(x))
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", name, strings.TrimPrefix(x.Row(), string(Anchor)+" "),
			Millis(x.P50), Millis(x.P99), Millis(x.P999), strings.Join(notes, ", "))
		name = ""
	}
}

// succeeded returns the goodput if it is significant.
func succeeded(r *Result) string {
	if r.Goodput > .9995 {
		return ""
	}
	return fmt.Sprintf(" (%.1f %%)", 100*r.Goodput)
}
