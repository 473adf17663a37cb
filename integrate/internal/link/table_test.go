// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/grpc"
)

// TestTable compares a table with a map through random changes.
func TestTable(t *testing.T) {
	tab, want := newTable(), map[*grpc.ClientConn]*Link{}
	var all []*grpc.ClientConn
	var links []*Link
	for range 100 {
		all, links = append(all, new(grpc.ClientConn)), append(links, New(Options{}))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for step := range 20_000 {
		n := 1 + step/200 // of which many, or few, are in the table
		cc, l := all[random.IntN(n)], links[random.IntN(2)]
		if random.IntN(2) == 0 {
			tab.set(cc, l)
			want[cc] = l
		} else {
			tab.remove(cc, l)
			if want[cc] == l {
				delete(want, cc)
			}
		}
		if got := tab.find(cc); got != want[cc] {
			t.Fatalf("step %d: find() = %v, want %v", step, got, want[cc])
		}
		if tab.bound != len(want) || 2*tab.used > len(*tab.slots.Load()) {
			t.Fatalf("step %d: %d channels, of which %d are known, %d slots in use of %d", step, len(want), tab.bound, tab.used, len(*tab.slots.Load()))
		}
	}
	for _, cc := range all {
		if got := tab.find(cc); got != want[cc] {
			t.Errorf("find() = %v, want %v", got, want[cc])
		}
	}
	if n := len(*tab.slots.Load()); n > 1024 {
		t.Errorf("the table of at most 100 channels has %d slots", n)
	}
}

// BenchmarkFind finds the links of channels in turn.
func BenchmarkFind(b *testing.B) {
	for name, n := range map[string]int{"channels=1": 1, "channels=16": 16, "channels=256": 256} {
		b.Run(name, func(b *testing.B) {
			var all []*grpc.ClientConn
			for range n {
				cc, l := new(grpc.ClientConn), New(Options{})
				l.Bind(cc, 1)
				b.Cleanup(func() { l.Close() })
				all = append(all, cc)
			}
			for i := 0; b.Loop(); i++ {
				if Find(b.Context(), all[i&(n-1)]) == nil {
					b.Fatal("no link")
				}
			}
		})
	}
}
