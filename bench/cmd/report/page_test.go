// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/latency"
	"github.com/xdslb/xdslb/bench/record"
)

func TestRender(t *testing.T) {
	rec, err := record.Read(strings.NewReader(`cpu: A <fast> one
BenchmarkPolicy/impl=ours/policy=ring_hash/n=1000-2 1 50 cpu-ns/op 0 allocs/op
BenchmarkPolicy/impl=stock/policy=ring_hash/n=1000-2 1 500 cpu-ns/op 4 allocs/op
`))
	if err != nil {
		t.Fatal(err)
	}
	shares := []latency.Share{{Backend: "a", Capacity: .2, Got: .3}, {Backend: "b", Capacity: .8, Got: .7}}
	lat := &latency.Report{Go: "go1.26", Policies: []latency.Run{
		{Impl: "ours", Policy: "edf", Sent: 10, P99: 12.5, Lag99: 3.2, P999: 40, Lag999: 1, Shares: shares},
		{Impl: "stock", Policy: "edf", Error: "<refused>"},
	}, Events: []latency.Run{{Impl: "ours", Event: "failover", Marks: []latency.Mark{{Second: 1, Label: "stop"}}, Buckets: []latency.Bucket{{P99: 1}, {Second: 1, P99: 2}}}}}
	out, err := render(rec, lat)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A &lt;fast&gt; one", "&lt;refused&gt;", "×10", "12.50 †", ">12.5 ms †<", ">40 ms<", "in 1 of 2 runs", "failover: latency", "What the slow backend got", "ring_hash"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(string(out), "NaN") {
		t.Error("NaN on the page")
	}
	if _, err := render(&record.Record{}, &latency.Report{}); err != nil {
		t.Errorf("an empty page: %v", err)
	}
}

// Each implementation that there are records of has a colour of its own.
func TestColours(t *testing.T) {
	f, err := os.Open("../../testdata/baseline.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	rec, err := record.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]string{unknown: "an unknown implementation"}
	for _, m := range impls {
		if other := taken[m.Colour]; other != "" {
			t.Errorf("%s has the colour of %s", m.Name, other)
		}
		taken[m.Colour] = m.Name
	}
	for _, c := range charted {
		for _, r := range rec.Results {
			if name := r.Param("impl"); r.Op == c.op && name != "none" && place(name) == len(impls) {
				t.Errorf("%s, in the chart %q, has no colour", name, c.title)
			}
		}
	}
}
