// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/xdslb/xdslb/bench/record"
)

// figures looks up measurements in a record.
type figures struct{ *record.Record }

// get returns a cell by benchmark ("Select"), unit, implementation and the rest of the name
// ("case=full/n=30", and "-2" on two processors).
func (f figures) get(op, unit, impl, row string) record.Cell {
	for _, t := range f.Tables("impl", unit) {
		if t.Op == op {
			return t.Cell(row, impl)
		}
	}
	return record.Cell{Empty: true}
}

// where describes the environment of a table's measurements.
func (f figures) where() string {
	return fmt.Sprintf("`%s` at %s, %s, %s, gRPC %s, %s processors of a shared %s with a load of %s at the start. "+
		"CPU time, the minimum of the repetitions; ratios within a run are more reliable than times.",
		f.Get("command"), f.Get("commit"), f.Get("date"), f.Get("go"), f.Get("grpc"), f.Get("processors"), f.Get("cpu"), f.Get("load"))
}

// front returns README.md's table: the costs for users.
func front(rec *record.Record) string {
	f := figures{rec}
	var b strings.Builder
	b.WriteString("\n| | stock `grpc/xds` | xdslb | plain `round_robin`, no xDS |\n|---|---|---|---|\n")
	row := func(what string, cell func(impl string) string) {
		stock, ours, plain := cell("stock"), cell("ours"), cell("round_robin")
		if ours != "" {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", what, stock, ours, plain)
		}
	}
	selected := func(row string) func(impl string) string {
		return func(impl string) string {
			ns := f.get("Select", "cpu-ns/op", impl, row)
			if ns.Empty {
				return ""
			}
			return fmt.Sprintf("%s, %s", ns.In("cpu-ns/op"), plural(f.get("Select", "allocs/op", impl, row), "alloc"))
		}
	}
	row("one RPC from the call to its connection; 3 localities of 10 endpoints, load reports, circuit breaker, 2 drop categories", selected("case=full/n=30"))
	row("the same, by a channel of `integrate.NewClient`, with its interceptors", func(impl string) string {
		if impl != "ours" {
			return ""
		}
		return selected("case=full/n=30")("new_client")
	})
	row("the same, on two goroutines", selected("case=full/n=30-2"))
	row("the same, after 20 routes that do not match", selected("case=20routes/n=30"))
	row("ring hash of a header, 1000 endpoints", selected("case=ring/n=1000"))
	row("a whole unary RPC over loopback TCP, 64 in flight: client, server and network", func(impl string) string {
		cpu := f.get("Loopback", "cpu-ns/op", impl, loopback)
		if cpu.Empty {
			return ""
		}
		return fmt.Sprintf("%s of CPU, %s", cpu.In("cpu-ns/op"), plural(f.get("Loopback", "allocs/op", impl, loopback), "alloc"))
	})
	row("EDS update that changes one weight of 5000", func(impl string) string {
		const row = "n=5000/change=weight-2"
		cpu, kib := f.get("EDSUpdate", "client-cpu-µs/op", impl, row), f.get("EDSUpdate", "client-KiB/op", impl, row)
		if cpu.Empty || cpu.Amount <= 0 || kib.Amount <= 0 {
			return ""
		}
		return fmt.Sprintf("%s of CPU, %s", cpu.In("client-cpu-µs/op"), kib.In("client-KiB/op"))
	})
	row("start with 10,000 endpoints until all are READY", func(impl string) string {
		cpu, kib := f.get("Startup", "cpu-ms/op", impl, "n=10000-2"), f.get("Startup", "KiB/op", impl, "n=10000-2")
		if cpu.Empty {
			return ""
		}
		return fmt.Sprintf("%s of CPU, %s", cpu.In("cpu-ms/op"), kib.In("KiB/op"))
	})
	row("binary of a small program, stripped; with the build tag `grpcnotrace`", func(impl string) string {
		all, few := f.get("Binary", "B/binary", impl, "tags=none-2"), f.get("Binary", "B/binary", impl, "tags=grpcnotrace-2")
		if all.Empty || few.Empty {
			return ""
		}
		return fmt.Sprintf("%s; %s", all.In("B/binary"), few.In("B/binary"))
	})
	if ours, ok := over(f.get("Loopback", "cpu-ns/op", "ours", loopback), f.get("Loopback", "cpu-ns/op", "stock", loopback)); ok && ours > 0 {
		fmt.Fprintf(&b, "\nMost of the cost of an RPC is HTTP/2 and the network. A whole RPC takes %s CPU time than with stock. "+
			"Expect this saving in a service, not the ratio of the first rows.\n", change(ours))
	}
	fmt.Fprintf(&b, "\n%s [All figures and goals](bench/README.md).\n", f.where())
	return b.String()
}

// loopback is the row of whole RPCs.
const loopback = "inflight=64-2"

func plural(c record.Cell, what string) string {
	s := c.In(what+"s/op") + " " + what
	if c.Amount != 1 {
		s += "s"
	}
	return s
}

// change returns the difference of a ratio from 1 in words.
func change(ratio float64) string {
	if ratio > 1 {
		return fmt.Sprintf("%.0f %% more", 100*(ratio-1))
	}
	return fmt.Sprintf("%.0f %% less", 100*(1-ratio))
}
