// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A Table has the results of one operation and unit: a row for each set of the
// other parameters, a column for each implementation.
type Table struct {
	Op, Unit string
	Columns  []string
	Rows     []Row
}

// A Row has a cell for each column.
type Row struct {
	Name  string
	Cells []Cell
}

// A Cell is the minimum of a benchmark's repetitions, since other load of a machine only
// increases times. It is empty without a measurement.
type Cell struct {
	Amount float64
	Empty  bool
}

// Tables returns tables of the results by the values of a parameter, in order of appearance.
// Only the given units are included.
func (r *Record) Tables(by string, units ...string) []*Table {
	var tables []*Table
	for _, res := range r.Results {
		for _, unit := range units {
			amount, ok := res.Value(unit)
			if !ok {
				continue
			}
			i := slices.IndexFunc(tables, func(t *Table) bool { return t.Op == res.Op && t.Unit == unit })
			if i < 0 {
				i = len(tables)
				tables = append(tables, &Table{Op: res.Op, Unit: unit})
			}
			name := res.Rest(by)
			if res.Procs != "" {
				name += "-" + res.Procs
			}
			tables[i].add(name, res.Param(by), amount)
		}
	}
	return tables
}

func (t *Table) add(row, column string, amount float64) {
	k := slices.Index(t.Columns, column)
	if k < 0 {
		k = len(t.Columns)
		t.Columns = append(t.Columns, column)
	}
	i := slices.IndexFunc(t.Rows, func(r Row) bool { return r.Name == row })
	if i < 0 {
		i = len(t.Rows)
		t.Rows = append(t.Rows, Row{Name: row})
	}
	r := &t.Rows[i]
	for len(r.Cells) <= k {
		r.Cells = append(r.Cells, Cell{Empty: true})
	}
	if r.Cells[k].Empty || amount < r.Cells[k].Amount {
		r.Cells[k] = Cell{Amount: amount}
	}
}

// Cell returns a cell by its names, or an empty cell.
func (t *Table) Cell(row, column string) Cell {
	k := slices.Index(t.Columns, column)
	i := slices.IndexFunc(t.Rows, func(r Row) bool { return r.Name == row })
	if i < 0 || k < 0 || k >= len(t.Rows[i].Cells) {
		return Cell{Empty: true}
	}
	return t.Rows[i].Cells[k]
}

// Print writes the table for people. Each column except base's is followed by its ratio to
// base's.
func (t *Table) Print(w io.Writer, base string) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%s, %s\t", t.Op, t.Unit)
	for _, c := range t.Columns {
		fmt.Fprintf(out, "%s\t", c)
		if c != base {
			fmt.Fprint(out, "\t")
		}
	}
	fmt.Fprintln(out)
	for _, row := range t.Rows {
		fmt.Fprintf(out, "%s\t", row.Name)
		ours := t.Cell(row.Name, base)
		for _, c := range t.Columns {
			cell := t.Cell(row.Name, c)
			fmt.Fprintf(out, "%s\t", cell.In(t.Unit))
			if c != base {
				fmt.Fprintf(out, "%s\t", cell.Ratio(ours))
			}
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

// Ratio returns the ratio of the cell to base, or "" if it is meaningless.
func (c Cell) Ratio(base Cell) string {
	if c.Empty || base.Empty || base.Amount == 0 || c.Amount == 0 {
		return ""
	}
	return "×" + digits(c.Amount/base.Amount)
}

// In formats the cell, with an amount in the unit, for people.
func (c Cell) In(unit string) string {
	if c.Empty {
		return ""
	}
	amount := c.Amount
	scale := func(step float64, names ...string) string {
		i := 0
		for ; i < len(names)-1 && amount >= 1000 && amount >= step; i++ {
			amount /= step
		}
		return digits(amount) + " " + names[i]
	}
	base, _, _ := strings.Cut(unit, "/")
	base = strings.TrimPrefix(strings.TrimPrefix(base, "client-"), "all-")
	switch base {
	case "ns", "cpu-ns":
		return scale(1000, "ns", "µs", "ms", "s")
	case "cpu-µs":
		return scale(1000, "µs", "ms", "s")
	case "cpu-ms":
		return scale(1000, "ms", "s")
	case "B":
		return scale(1024, "B", "KiB", "MiB", "GiB")
	case "KiB":
		return scale(1024, "KiB", "MiB", "GiB")
	}
	return digits(amount)
}

// digits formats with three significant digits, and whole numbers in full.
func digits(f float64) string {
	if f == float64(int64(f)) || f >= 100 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	if f >= 10 {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 2, 64)
}
