// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"maps"
	"slices"
	"testing"
)

// TestSame: slices and maps are the same only if they share memory; empty slices are all the same.
func TestSame(t *testing.T) {
	s, m := []int{1, 2}, map[int]int{1: 2}
	for _, tt := range []struct {
		name      string
		got, want bool
	}{
		{"slice itself", SameSlice(s, s), true},
		{"prefix", SameSlice(s, s[:1]), false},
		{"suffix", SameSlice(s, s[1:]), false},
		{"equal slice", SameSlice(s, slices.Clone(s)), false},
		{"empty slices", SameSlice(s[:0], nil), true},
		{"map itself", SameMap(m, m), true},
		{"equal map", SameMap(m, maps.Clone(m)), false},
		{"nil maps", SameMap[map[int]int](nil, nil), true},
		{"nil map and empty map", SameMap(nil, map[int]int{}), false},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: same is %v, want %v", tt.name, tt.got, tt.want)
		}
	}
}
