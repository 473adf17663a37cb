// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

const run = `goos: linux
cpu: AMD EPYC
commit: abc
BenchmarkPick/impl=ours/n=10-2         	 100	  120.0 ns/op	 0 B/op	 0 allocs/op
BenchmarkPick/impl=ours/n=10-2         	 100	  100.0 ns/op	 0 B/op	 0 allocs/op
BenchmarkPick/impl=stock/n=10-2        	 100	 1234 ns/op	 480 B/op	 21 allocs/op
BenchmarkPick/impl=ours/n=1000-2       	 100	  101.5 ns/op	 0 B/op	 0 allocs/op
BenchmarkSingle                        	   1	 5000000 ns/op	 2.5 MiB/op
--- BENCH: BenchmarkSingle
    some_test.go:1: words: and more
PASS
ok  	example.com/x	1.2s
`

func TestRead(t *testing.T) {
	r, err := Read(strings.NewReader(run))
	kit.Must(t, err)
	if len(r.Results) != 5 || r.Get("cpu") != "AMD EPYC" || r.Get("commit") != "abc" || r.Get("some_test.go:1") != "" {
		t.Fatalf("%d results, settings %v", len(r.Results), r.Config)
	}
	first := r.Results[0]
	if first.Name() != "Pick/impl=ours/n=10" || first.Procs != "2" || first.Rest("impl") != "n=10" || first.Param("impl") != "ours" {
		t.Errorf("first result is %+v", first)
	}
	if ns, ok := r.Results[4].Value("ns/op"); !ok || ns != 5e6 {
		t.Errorf("ns/op of the last = %v, %t", ns, ok)
	}
	if _, ok := r.Results[4].Value("B/op"); ok {
		t.Error("the last has B/op")
	}
	for _, bad := range []string{"BenchmarkX abc 1 ns/op", "BenchmarkX 1 2", "BenchmarkX 1 x ns/op"} {
		if _, err := Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestTables(t *testing.T) {
	r, err := Read(strings.NewReader(run))
	kit.Must(t, err)
	tables := r.Tables("impl", "ns/op")
	if len(tables) != 2 {
		t.Fatalf("%d tables", len(tables))
	}
	var b strings.Builder
	kit.Must(t, tables[0].Print(&b, "ours"))
	want := `
  Pick, ns/op    ours    stock       
       n=10-2  100 ns  1.23 µs  ×12.3
     n=1000-2  102 ns                
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got%swant%s", got, want)
	}
}

func TestCell(t *testing.T) {
	for _, test := range []struct {
		amount float64
		unit   string
		want   string
	}{
		{5.89, "ns/op", "5.89 ns"}, {999, "ns/op", "999 ns"}, {54.12e6, "ns/op", "54.1 ms"}, {30e9, "ns/op", "30 s"},
		{21, "allocs/op", "21"}, {0, "allocs/op", "0"}, {1 << 20, "B/op", "1 MiB"}, {4.9, "cpu-ms/op", "4.90 ms"}, {4900, "client-cpu-µs/op", "4.90 ms"}, {2048, "client-KiB/op", "2 MiB"}, {49, "all-cpu-µs/op", "49 µs"}, {1023, "B/op", "1023 B"},
	} {
		if got := (Cell{Amount: test.amount}).In(test.unit); got != test.want {
			t.Errorf("%v %s = %q, want %q", test.amount, test.unit, got, test.want)
		}
	}
	if got := (Cell{Empty: true}).In("ns/op"); got != "" {
		t.Errorf("an empty cell is %q", got)
	}
	if got := (Cell{Amount: 10}).Ratio(Cell{Amount: 0}); got != "" {
		t.Errorf("ratio to nothing is %q", got)
	}
}
