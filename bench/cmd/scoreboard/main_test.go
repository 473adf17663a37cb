// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path"
	"slices"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestPasses checks that only packages with a benchmark of the pattern are built, and each once if the pattern is
// not for all of them.
func TestPasses(t *testing.T) {
	t.Chdir("../../..")
	for pattern, want := range map[string][]string{
		".":                      {"bench", "bench", "bench/rollout", "bench/size", "bench/peers"},
		"Match":                  {"bench"},
		"Select":                 {"bench"}, // in package overlay
		"^BenchmarkHot$/op=pick": {"bench"},
		"Policy/impl=(ours|stock)/policy=ring_hash": {"bench", "bench/peers"},
		"Binary":           {"bench/size"},
		"Binary/x|Match/y": {"bench", "bench/size"},
	} {
		list, err := passes(options{pattern: pattern, cpu: "1,2", peers: true})
		kit.Must(t, err)
		var got []string
		for _, p := range list {
			got = append(got, path.Join(p.dir, p.pkg))
		}
		if !slices.Equal(got, want) {
			t.Errorf("the benchmarks %s are run in %v, want %v", pattern, got, want)
		}
	}
	if list, err := passes(options{pattern: "^Match", cpu: "1"}); err == nil {
		t.Errorf("a pattern without benchmarks has %v", list)
	}
}
