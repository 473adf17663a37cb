// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/kit/slow"
)

func mustMaglev(tb testing.TB, hosts []Host, size uint64, fn Func) *Maglev {
	tb.Helper()
	m, err := NewMaglev(hosts, size, fn)
	kit.Must(tb, err)
	return m
}

// defaultTableSize is the size of Envoy's Maglev table unless configured.
const defaultTableSize = 65537

// tableOf returns the hosts of all slots: slots are hashes that are small.
func tableOf(m *Maglev) []int {
	table := make([]int, m.size)
	for slot := range table {
		table[slot] = m.Pick(uint64(slot))
	}
	return table
}

// checkTable compares the slots of a table with the oracle's.
func checkTable(t *testing.T, m *Maglev, hosts []Host, fn Func) {
	t.Helper()
	got, want := tableOf(m), slow.Maglev(hosts, m.size, fn == XXH64)
	for slot := range want {
		if got[slot] != want[slot] {
			t.Fatalf("function %d, table of size %d for %d hosts, first %v: slot %d has host %d, want %d", fn, m.size, len(hosts), hosts[:min(len(hosts), 60)], slot, got[slot], want[slot])
		}
	}
}

// TestMaglevMatchesOracle checks that the heap of turns fills the table as rounds over all hosts do,
// for random weights, and for hosts in any order (T-RING-4).
func TestMaglevMatchesOracle(t *testing.T) {
	rng := newRand(13)
	sizes := []uint64{2, 3, 5, 7, 17, 101, 251, 1009, 4099}
	for range 400 {
		hosts := randomHosts(rng, 60)
		size := sizes[rng.IntN(len(sizes))]
		fn := funcs[rng.IntN(2)]
		checkTable(t, mustMaglev(t, hosts, size, fn), hosts, fn)
	}
}

// Weights whose normalized quotients are rounded: whether a turn is due in a round
// is decided by the rounding.
func TestMaglevRounding(t *testing.T) {
	for heavy := uint32(2); heavy < 60; heavy++ {
		hosts := []Host{{"heavy", heavy}}
		for light := uint32(1); light < heavy; light++ {
			hosts = append(hosts, Host{fmt.Sprint("light", light), light})
		}
		checkTable(t, mustMaglev(t, hosts, 4099, XXH64), hosts, XXH64)
	}
}

// Tables that Envoy's maglev_lb_test.cc publishes.
func TestEnvoyMaglev(t *testing.T) {
	tests := []struct {
		name    string
		format  string
		weights []uint32 // of hosts 90, 91 and so on
		want    []int
	}{
		{"Basic", "127.0.0.1:%d", []uint32{1, 1, 1, 1, 1, 1}, []int{2, 4, 0, 1, 5, 0, 3}},
		{"BasicWithHostName", "%d", []uint32{1, 1, 1, 1, 1, 1}, []int{2, 5, 0, 3, 4, 1, 0}},
		{"Weighted", "127.0.0.1:%d", []uint32{1, 2}, []int{1, 0, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1}},
		{"LocalityWeightedSameLocalityWeights", "127.0.0.1:%d", []uint32{1, 1}, []int{1, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1}},
		{"LocalityWeightedDifferentLocalityWeights", "127.0.0.1:%d", []uint32{8, 2}, []int{1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0}},
	}
	for _, test := range tests {
		hosts := make([]Host, len(test.weights))
		for i, w := range test.weights {
			hosts[i] = Host{fmt.Sprintf(test.format, 90+i), w}
		}
		if got := tableOf(mustMaglev(t, hosts, uint64(len(test.want)), XXH64)); !slices.Equal(got, test.want) {
			t.Errorf("%s: table is %v, want %v", test.name, got, test.want)
		}
	}
}

// More hosts than fit in the narrow table, at the edge.
func TestMaglevWide(t *testing.T) {
	hosts := benchHosts(math.MaxUint16 + 2)
	for _, n := range []int{math.MaxUint16 + 1, math.MaxUint16 + 2} {
		m := mustMaglev(t, hosts[:n], 65539, XXH64)
		if wide := m.wide != nil; wide != (n > math.MaxUint16+1) || wide == (m.narrow != nil) {
			t.Errorf("%d hosts: wide is %v", n, wide)
		}
		checkTable(t, m, hosts[:n], XXH64)
	}
}

// Hosts of weight zero have no slot. Hosts with the same key share its slots by weight, and
// one permutation, since the time to build would be quadratic in them otherwise.
func TestMaglevSameKey(t *testing.T) {
	hosts := []Host{{"x", 1}, {"y", 0}, {"x", 2}, {"y", 0}, {"z", 2}, {"x", 3}}
	members, sum, err := rank(hosts)
	kit.Must(t, err)
	hs := maglevHosts(members, sum, 251, XXH64)
	if hs[0].slots != hs[2].slots || hs[2].slots == hs[3].slots {
		t.Error("hosts share walks otherwise than by key")
	}
}

// The modulus by multiplication is exact, for primes of every magnitude.
func TestMaglevSlot(t *testing.T) {
	rng := newRand(15)
	for size := uint64(2); size <= tableSizeLimit; size = size*3/2 + 1 {
		for !isPrime(size) {
			size++
		}
		m := &Maglev{size: size, magic: math.MaxUint64 / size}
		hashes := []uint64{0, 1, 2, math.MaxUint64, math.MaxUint64 - 1, math.MaxUint64/size*size - 1, math.MaxUint64 / size * size}
		for range 1000 {
			multiple := rng.Uint64N(math.MaxUint64/size) * size
			hashes = append(hashes, multiple-1, multiple, multiple+1, rng.Uint64())
		}
		for _, hash := range hashes {
			if got, want := m.slot(hash), hash%size; got != want {
				t.Fatalf("slot(%d) of a table of %d = %d, want %d", hash, size, got, want)
			}
		}
	}
}

func TestIsPrime(t *testing.T) {
	composite := [10_000]bool{0: true, 1: true}
	for n := range composite {
		if got := isPrime(uint64(n)); got == composite[n] {
			t.Errorf("isPrime(%d) = %v, want %v", n, got, !composite[n])
		}
		for m := 2 * n; n > 1 && m < len(composite); m += n {
			composite[m] = true
		}
	}
}
