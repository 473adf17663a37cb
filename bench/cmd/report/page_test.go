// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	shares := []latency.Share{{Backend: "a", Capacity: .2, Got: .3}}
	lat := &latency.Report{Go: "go1.26", Policies: []latency.Run{
		{Impl: "ours", Policy: "edf", Sent: 10, P99: 12.5, Shares: shares},
		{Impl: "stock", Policy: "edf", Error: "<refused>"},
	}, Events: []latency.Run{{Impl: "ours", Event: "failover", Marks: []latency.Mark{{Second: 1, Label: "stop"}}, Buckets: []latency.Bucket{{P99: 1}, {Second: 1, P99: 2}}}}}
	out, err := render(rec, lat)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A &lt;fast&gt; one", "&lt;refused&gt;", "×10", "12.50", "failover: p99", "Shares by edf", "ring_hash"} {
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
