// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/record"
)

// The tables in the pages match the recorded run.
func TestPagesAreCurrent(t *testing.T) {
	const root = "../../.."
	want, err := compose(root)
	kit.Must(t, err)
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(root, name))
		kit.Must(t, err)
		if !bytes.Equal(got, text) {
			t.Errorf("%s does not match %s: run make readme", name, recorded)
		}
	}
}

const run = `commit: abc
BenchmarkSelect/impl=round_robin/case=full/n=30 100 100 cpu-ns/op 1 allocs/op
BenchmarkSelect/impl=stock/case=full/n=30 100 2000 cpu-ns/op 21 allocs/op
BenchmarkSelect/impl=ours/case=full/n=30 100 151 cpu-ns/op 1 allocs/op
BenchmarkSelect/impl=new_client/case=full/n=30 100 130 cpu-ns/op 1 allocs/op
BenchmarkLoopback/impl=round_robin/inflight=64-2 1 47000 cpu-ns/op 136 allocs/op
BenchmarkLoopback/impl=stock/inflight=64-2 1 54000 cpu-ns/op 159 allocs/op
BenchmarkLoopback/impl=ours/inflight=64-2 1 48600 cpu-ns/op 140 allocs/op
BenchmarkEDSUpdate/impl=stock/n=5000/change=weight-2 10 50000 client-cpu-µs/op 15000 client-KiB/op
BenchmarkEDSUpdate/impl=ours/n=5000/change=weight-2 10 1000 client-cpu-µs/op 500 client-KiB/op
BenchmarkEDSUpdate/impl=none/n=5000/change=none-2 10 400 client-cpu-µs/op
BenchmarkEDSUpdate/impl=ours/n=5000/change=none-2 10 300 client-cpu-µs/op
BenchmarkRing/impl=stock/op=build/n=65536-2 10 0 cpu-ns/op
BenchmarkRing/impl=ours/op=build/n=65536-2 10 100 cpu-ns/op
BenchmarkBinary/impl=round_robin/tags=none-2 1 10490121 B/binary
BenchmarkBinary/impl=round_robin/tags=grpcnotrace-2 1 7713033 B/binary
BenchmarkBinary/impl=stock/tags=none-2 1 26923273 B/binary
BenchmarkBinary/impl=stock/tags=grpcnotrace-2 1 15913225 B/binary
BenchmarkBinary/impl=ours/tags=none-2 1 25223433 B/binary
BenchmarkBinary/impl=ours/tags=grpcnotrace-2 1 15982857 B/binary
`

func TestTables(t *testing.T) {
	rec, err := record.Read(strings.NewReader(run))
	kit.Must(t, err)
	for _, want := range []string{"| 2 µs, 21 allocs | 151 ns, 1 alloc | 100 ns, 1 alloc |", "| 54 µs of CPU, 159 allocs | 48.6 µs of CPU, 140 allocs | 47 µs of CPU, 136 allocs |", "A whole RPC takes 10 % less CPU",
		"with its interceptors |  | 130 ns, 1 alloc |  |",
		"| 50 ms of CPU, 14.6 MiB | 1 ms of CPU, 500 KiB |",
		"| 25.7 MiB; 15.2 MiB | 24.1 MiB; 15.2 MiB | 10.0 MiB; 7.36 MiB |"} {
		if got := front(rec); !strings.Contains(got, want) {
			t.Errorf("no %q in%s", want, got)
		}
	}
	for _, want := range []string{"| ×1.25 | ×1.51 | **missed** |", "| ×1.35 | ×1.30 | reached |", "| 0 | 0 | reached |", "| 1/10 | 1/50 | reached |", "| not in this run |",
		"5000 endpoints: CPU of the client, more than gRPC alone | `EDSUpdate/n=5000/change=none` | 200 µs |  | not measured |", "| 1/5 |  | not measured |"} {
		if got := goals(rec); !strings.Contains(got, want) {
			t.Errorf("no %q in%s", want, got)
		}
	}
}
