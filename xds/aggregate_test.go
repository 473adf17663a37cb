// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/xds/resource"
)

// graph is a set of Cluster entries, written as "a: b c" for an aggregate, "a"
// for a leaf, "a!" for one that is missing, "a?" for one that is not known yet, "a~" for one of other
// servers, which cannot be reached, and "a^" for one of the same servers, which cannot be reached.
func graph(lines ...string) func(string) *entry {
	entries := map[string]*entry{}
	here, there := &authority{}, &lookups{}
	for _, line := range lines {
		name, children, aggregate := strings.Cut(line, ":")
		bare := strings.TrimRight(name, "!?~^")
		e := &entry{key: entryKey{cds, bare}, source: here}
		switch {
		case aggregate:
			e.value = &resource.Cluster{Name: bare, Kind: resource.ClusterAggregate, Children: strings.Fields(children)}
		case strings.HasSuffix(name, "!"):
			e.err = errors.New(bare + " is missing")
		case strings.HasSuffix(name, "~"):
			e.err, e.transient, e.source = errors.New(bare+" is out of reach"), true, there
		case strings.HasSuffix(name, "^"):
			e.err, e.transient = errors.New(bare+" is out of reach"), true
		case !strings.HasSuffix(name, "?"):
			e.value = &resource.Cluster{Name: bare}
		}
		entries[bare] = e
	}
	return func(name string) *entry { return entries[name] }
}

// chain returns an aggregate of an aggregate and so on, n clusters in all, the
// last of which is the leaf "l".
func chain(n int) []string {
	lines := []string{"l"}
	for i := n - 2; i >= 0; i-- {
		child := fmt.Sprint("c", i+1)
		if i == n-2 {
			child = "l"
		}
		lines = append(lines, fmt.Sprintf("c%d: %s", i, child))
	}
	return lines
}

// TestFlatten is about the shape of aggregates (A37, A74, T-WATCH-5).
func TestFlatten(t *testing.T) {
	for _, tt := range []struct {
		name  string
		graph []string
		root  string
		want  string
		ready readiness
		err   string
	}{
		{"leaf", []string{"a"}, "a", "[a]", ready, ""},
		{"A37's example", []string{"A: B C", "B", "C: D E", "D", "E"}, "A", "[B D E]", ready, ""},
		{"twice, first place counts", []string{"a: x b", "b: y x z", "x", "y", "z"}, "a", "[x y z]", ready, ""},
		{"diamond", []string{"a: b c", "b: d", "c: d e", "d: x", "e", "x"}, "a", "[x e]", ready, ""},
		{"cycle", []string{"a: b x", "b: a y", "x", "y"}, "a", "[y x]", ready, ""},
		{"nothing but a cycle", []string{"a: b", "b: a"}, "a", "[]", ready, "no leaf clusters"},
		{"its own child", []string{"a: a"}, "a", "[]", ready, "no leaf clusters"},
		{"16 deep", chain(16), "c0", "[l]", ready, ""},
		{"17 deep", chain(17), "c0", "[]", ready, "max depth (16)"},
		{"missing", []string{"a!"}, "a", "[]", ready, "a is missing"},
		{"children missing", []string{"a: b c", "b!", "c!"}, "a", "[]", ready, "b is missing"},
		{"child passed over", []string{"a: b c", "b!", "c"}, "a", "[c]", ready, ""},
		{"unknown", []string{"a?"}, "a", "[]", waiting, ""},
		{"child unknown", []string{"a: b c", "b?", "c"}, "a", "[c]", waiting, ""},
		{"child of another authority out of reach", []string{"a: b c", "b~", "c"}, "a", "[c]", unavailable, ""},
		{"child out of reach", []string{"a: b c", "b^", "c"}, "a", "[c]", interrupted, ""},
		{"out of reach", []string{"a~"}, "a", "[]", unavailable, "a is out of reach"},
	} {
		leaves, _, r, err := flatten(tt.root, maxLeaves, graph(tt.graph...))
		if fmt.Sprint(leaves) != tt.want || r != tt.ready || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: flatten = %v, %v, %v; want %v, %v, %q", tt.name, leaves, r, err, tt.want, tt.ready, tt.err)
		}
	}
}

// TestFlattenOracle compares with the definition: all paths, depth first, and
// of each leaf the first.
func TestFlattenOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := 2 + rng.IntN(8)
		var lines []string
		children := map[string][]string{}
		for i := range n {
			name := fmt.Sprint("n", i)
			if rng.IntN(2) == 0 {
				lines = append(lines, name)
				continue
			}
			for range rng.IntN(4) {
				children[name] = append(children[name], fmt.Sprint("n", rng.IntN(n)))
			}
			lines = append(lines, name+": "+strings.Join(children[name], " "))
			if children[name] == nil {
				children[name] = []string{}
			}
		}
		var want []string
		var paths func(path []string)
		paths = func(path []string) {
			last := path[len(path)-1]
			if slices.Contains(path[:len(path)-1], last) {
				return // a cycle
			}
			if children[last] == nil && !slices.Contains(want, last) {
				want = append(want, last)
			}
			for _, c := range children[last] {
				paths(append(slices.Clone(path), c))
			}
		}
		paths([]string{"n0"})
		got, _, r, err := flatten("n0", maxLeaves, graph(lines...))
		if !slices.Equal(got, want) || r != ready || (err != nil) != (len(want) == 0) {
			t.Fatalf("flatten = %v, %v, %v; want %v\n%s", got, r, err, want, strings.Join(lines, "\n"))
		}
	}
}

// TestFlattenCost checks that a graph with very many paths is walked in no time.
func TestFlattenCost(t *testing.T) {
	lines := []string{"l"}
	for i := range 14 {
		child := fmt.Sprint("n", i-1)
		if i == 0 {
			child = "l"
		}
		lines = append(lines, fmt.Sprintf("n%d:%s", i, strings.Repeat(" "+child, 100)))
	}
	lookups := 0
	lookup := graph(lines...)
	leaves, _, _, _ := flatten("n13", maxLeaves, func(name string) *entry { lookups++; return lookup(name) })
	if len(leaves) != 1 || lookups > 16 {
		t.Errorf("%d leaves after %d look-ups, want 1 and no more than 16", len(leaves), lookups)
	}
}
