// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"fmt"
	"math"
	"math/rand/v2"
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

// TestMaglevMatchesOracle checks that the heap of turns fills the table as rounds over all hosts do,
// for random weights, and for hosts in any order (T-RING-4).
func TestMaglevMatchesOracle(t *testing.T) {
	rng := newRand(13)
	sizes := []uint64{2, 3, 5, 7, 17, 101, 251, 1009, 4099}
	for range 400 {
		hosts := randomHosts(rng, 60)
		size := sizes[rng.IntN(len(sizes))]
		fn := funcs[rng.IntN(2)]
		if got, want := tableOf(mustMaglev(t, hosts, size, fn)), slow.Maglev(hosts, size, fn == XXH64); !slices.Equal(got, want) {
			t.Fatalf("table of size %d for %v, function %d differs from oracle", size, hosts, fn)
		}
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
		if got, want := tableOf(mustMaglev(t, hosts, 4099, XXH64)), slow.Maglev(hosts, 4099, true); !slices.Equal(got, want) {
			t.Errorf("table of weights 1 to %d differs from oracle", heavy)
		}
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

// One host much heavier than all others takes all slots but one each: Envoy's
// LocalityWeightedLopsided. Examining each host in each round would take 65 million steps here.
func TestMaglevLopsided(t *testing.T) {
	hosts := benchHosts(1024)
	hosts[0].Weight = 127 * 1023
	slots := make([]int, len(hosts))
	for _, host := range tableOf(mustMaglev(t, hosts, defaultTableSize, XXH64)) {
		slots[host]++
	}
	for host, got := range slots {
		want := 1
		if host == 0 {
			want = defaultTableSize - 1023
		}
		if got != want {
			t.Fatalf("host %d has %d slots, want %d", host, got, want)
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
		if got, want := tableOf(m), slow.Maglev(hosts[:n], 65539, true); !slices.Equal(got, want) {
			t.Errorf("table of %d hosts differs from oracle", n)
		}
	}
}

// Hosts of weight zero have no slot. Hosts with the same key share its slots by weight, and
// one permutation, since the time to build would be quadratic in them otherwise.
func TestMaglevSameKey(t *testing.T) {
	hosts := []Host{{"x", 1}, {"y", 0}, {"x", 2}, {"y", 0}, {"z", 2}, {"x", 3}}
	if got, want := tableOf(mustMaglev(t, hosts, 251, XXH64)), slow.Maglev(hosts, 251, true); !slices.Equal(got, want) {
		t.Error("table of hosts with the same key differs from oracle")
	}
	members, sum, err := rank(hosts)
	kit.Must(t, err)
	hs := maglevHosts(members, sum, 251, XXH64)
	if hs[0].slots != hs[2].slots || hs[2].slots == hs[3].slots {
		t.Error("hosts share walks otherwise than by key")
	}
}

// The modulus by multiplication is exact.
func TestMaglevSlot(t *testing.T) {
	rng := newRand(15)
	for size := uint64(2); size <= tableSizeLimit; size = size*3/2 + 1 {
		for !isPrime(size) {
			size++
		}
		checkSlot(t, rng, size)
	}
	checkSlot(t, rng, tableSizeLimit)
	checkSlot(t, rng, defaultTableSize)
}

func checkSlot(t *testing.T, rng *rand.Rand, size uint64) {
	t.Helper()
	m := &Maglev{size: size, magic: math.MaxUint64 / size}
	check := func(hash uint64) {
		if got, want := m.slot(hash), hash%size; got != want {
			t.Fatalf("slot(%d) = %d of %d, want %d", hash, got, size, want)
		}
	}
	for d := range uint64(3) {
		check(d)
		check(size - 1 + d)
		check(math.MaxUint64 - d)
		check(math.MaxUint64/size*size - 1 + d)
	}
	for range 1000 {
		multiple := rng.Uint64N(math.MaxUint64/size) * size
		check(multiple - 1)
		check(multiple)
		check(multiple + 1)
		check(rng.Uint64())
	}
}

func TestIsPrime(t *testing.T) {
	const limit = 10_000
	composite := [limit]bool{0: true, 1: true}
	for n := 2; n < limit; n++ {
		if got := isPrime(uint64(n)); got == composite[n] {
			t.Errorf("isPrime(%d) = %v", n, got)
		}
		for m := 2 * n; m < limit; m += n {
			composite[m] = true
		}
	}
	for _, n := range []uint64{2, defaultTableSize, tableSizeLimit} {
		if err := validateTableSize(n); err != nil {
			t.Error(err)
		}
	}
}
