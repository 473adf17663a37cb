// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/xdslb/xdslb/bench/record"
)

// A goal is a limit for a figure.
type goal struct {
	what, benchmark string
	limit           float64
	unit            string // of figure and limit: "×" of a ratio, or as in the record
	figure          func(f figures) (float64, bool)
}

// over is the ratio of two cells.
func over(a, b record.Cell) (float64, bool) {
	if a.Empty || b.Empty {
		return 0, false
	}
	if b.Amount <= 0 {
		return 0, true // not a figure: see verdict
	}
	return a.Amount / b.Amount, true
}

// against compares ours with another implementation in one row.
func against(op, unit, impl, row string) func(figures) (float64, bool) {
	return func(f figures) (float64, bool) {
		return over(f.get(op, unit, "ours", row), f.get(op, unit, impl, row))
	}
}

// alone is ours in one row.
func alone(op, unit, row string) func(figures) (float64, bool) {
	return func(f figures) (float64, bool) {
		c := f.get(op, unit, "ours", row)
		return c.Amount, !c.Empty
	}
}

// more returns the difference between ours and another implementation.
func more(op, unit, impl, row string) func(figures) (float64, bool) {
	return func(f figures) (float64, bool) {
		a, b := f.get(op, unit, "ours", row), f.get(op, unit, impl, row)
		return a.Amount - b.Amount, !a.Empty && !b.Empty
	}
}

var aims = []goal{
	{"RPC from call to connection, 3 x 10 endpoints, everything on, to plain round_robin", "Select/case=full/n=30", 1.25, "×", against("Select", "cpu-ns/op", "round_robin", "case=full/n=30")},
	{"the same by `integrate.NewClient`, with its interceptors", "Select/impl=new_client/case=full/n=30", 1.35, "×", func(f figures) (float64, bool) {
		return over(f.get("Select", "cpu-ns/op", "new_client", "case=full/n=30"), f.get("Select", "cpu-ns/op", "round_robin", "case=full/n=30"))
	}},
	{"allocations more than round_robin", "Select/case=full/n=30", 0, "allocs/op", more("Select", "allocs/op", "round_robin", "case=full/n=30")},
	{"one locality, neither load reports nor drops, to round_robin", "Select/case=plain/n=30", 1.35, "×", against("Select", "cpu-ns/op", "round_robin", "case=plain/n=30")},
	{"behind 20 routes, to round_robin", "Select/case=20routes/n=30", 1.5, "×", against("Select", "cpu-ns/op", "round_robin", "case=20routes/n=30")},
	{"ring hash of a header, 1000 endpoints, to stock", "Select/case=ring/n=1000", 1. / 8, "×", against("Select", "cpu-ns/op", "stock", "case=ring/n=1000")},
	{"EDF pick, 10 weights of 1 to 1000", "EDF/n=10/skew=random", 8, "cpu-ns/op", alone("EDF", "cpu-ns/op", "n=10/skew=random")},
	{"EDF pick, 1000", "EDF/n=1000/skew=random", 8, "cpu-ns/op", alone("EDF", "cpu-ns/op", "n=1000/skew=random")},
	{"EDF pick, 100,000", "EDF/n=100000/skew=random", 25, "cpu-ns/op", alone("EDF", "cpu-ns/op", "n=100000/skew=random")},
	{"EDF pick, 1000, one weight of 1000 and the others 1, to equal weights", "EDF/n=1000/skew=one", 1.5, "×", func(f figures) (float64, bool) {
		return over(f.get("EDF", "cpu-ns/op", "ours", "n=1000/skew=one"), f.get("EDF", "cpu-ns/op", "ours", "n=1000/skew=equal"))
	}},
	{"ring of 1000 hosts and 65,536 entries: build, to stock", "Ring/op=build/n=65536", 1. / 5, "×", against("Ring", "cpu-ns/op", "stock", "op=build/n=65536-2")},
	{"1,048,576 entries: build, to stock", "Ring/op=build/n=1048576", 1. / 5, "×", against("Ring", "cpu-ns/op", "stock", "op=build/n=1048576-2")},
	{"65,536 entries: one host replaced, to stock's build", "Ring/op=change/n=65536", 1. / 20, "×", against("Ring", "cpu-ns/op", "stock", "op=change/n=65536-2")},
	{"4096 entries: look-up, to stock", "Ring/op=pick/n=4096", 1. / 6, "×", against("Ring", "cpu-ns/op", "stock", "op=pick/n=4096-2")},
	{"1,048,576 entries: look-up, to stock", "Ring/op=pick/n=1048576", 1. / 6, "×", against("Ring", "cpu-ns/op", "stock", "op=pick/n=1048576-2")},
	{"10,000 endpoints from nothing to READY, CPU", "Startup/n=10000", 300, "cpu-ms/op", alone("Startup", "cpu-ms/op", "n=10000-2")},
	{"allocated meanwhile", "Startup/n=10000", 200 * 1024, "KiB/op", alone("Startup", "KiB/op", "n=10000-2")},
	{"the CPU, to that of 1000 endpoints", "Startup/n=10000", 12, "×", func(f figures) (float64, bool) {
		return over(f.get("Startup", "cpu-ms/op", "ours", "n=10000-2"), f.get("Startup", "cpu-ms/op", "ours", "n=1000-2"))
	}},
	{"EDS update, one weight of 5000: CPU of the client, to stock", "EDSUpdate/n=5000/change=weight", 1. / 10, "×", against("EDSUpdate", "client-cpu-µs/op", "stock", "n=5000/change=weight-2")},
	{"bytes allocated by the client, to stock", "EDSUpdate/n=5000/change=weight", 1. / 10, "×", against("EDSUpdate", "client-KiB/op", "stock", "n=5000/change=weight-2")},
	{"the same resource again, 5000 endpoints: CPU of the client, more than gRPC alone", "EDSUpdate/n=5000/change=none", 200, "client-cpu-µs/op", more("EDSUpdate", "client-cpu-µs/op", "none", "n=5000/change=none-2")},
	{"one of 9000 clusters changed, incremental ADS: bytes down", "ClusterUpdate/n=9000", 4096, "B/op", delta("ClusterUpdate", "down-B/op", 1)},
	{"reconnect with nothing changed, incremental ADS: bytes up for a resource", "ClusterReconnect/n=9000", 100, "B/op", delta("ClusterReconnect", "up-B/op", 2*9000+2)},
	{"bytes down, in all", "ClusterReconnect/n=9000", 1024, "B/op", delta("ClusterReconnect", "down-B/op", 1)},
	{"bytes held for an endpoint, of 10,000, without connections", "Startup/n=10000", 250, "B/endpoint", alone("Startup", "B/endpoint", "n=10000-2")},
	{"whole unary RPC over memory, allocations more than round_robin", "RPC/net=mem", 0, "allocs/op", more("RPC", "allocs/op", "round_robin", "net=mem-2")},
}

// delta returns ours with incremental ADS, divided by of, with 9000 clusters.
func delta(op, unit string, of float64) func(figures) (float64, bool) {
	return func(f figures) (float64, bool) {
		c := f.get(op, unit, "ours_delta", "n=9000-2")
		return c.Amount / of, !c.Empty
	}
}

// verdict returns the figure for people, and whether the goal is reached. A figure of 0 or less
// is a failed measurement, unless the goal is 0.
func (g *goal) verdict(f figures) (measured, verdict string) {
	v, ok := g.figure(f)
	switch {
	case !ok:
		return "", "not in this run"
	case v <= 0 && g.limit > 0:
		return "", "not measured"
	case v > g.limit:
		return show(v, g.unit), "**missed**"
	}
	return show(v, g.unit), "reached"
}

// goals returns bench/README.md's table of goals.
func goals(rec *record.Record) string {
	f := figures{rec}
	var b strings.Builder
	b.WriteString("\n| goal | benchmark | at most | measured | |\n|---|---|---|---|---|\n")
	for _, g := range aims {
		measured, verdict := g.verdict(f)
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", g.what, g.benchmark, show(g.limit, g.unit), measured, verdict)
	}
	fmt.Fprintf(&b, "\n%s\n", f.where())
	return b.String()
}

// show formats a figure or a limit.
func show(v float64, unit string) string {
	if unit == "×" {
		if v > 0 && v < .5 {
			return fmt.Sprintf("1/%.3g", 1/v)
		}
		return fmt.Sprintf("×%.2f", v)
	}
	return record.Cell{Amount: v}.In(unit)
}
