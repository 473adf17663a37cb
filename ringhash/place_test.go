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

func TestErrors(t *testing.T) {
	ok, heavy := []Host{{"a", 1}}, []Host{{"a", math.MaxUint32}, {"b", 1}}
	for _, test := range []struct {
		hosts            []Host
		minSize, maxSize uint64
		fn               Func
		want             string
	}{
		{nil, 1, 10, XXH64, "no hosts"},
		{[]Host{{"a", 0}, {"b", 0}}, 1, 10, XXH64, "all 2 hosts have weight 0"},
		{heavy, 1, 10, XXH64, "sum of host weights 4294967296 exceeds 4294967295"},
		{ok, 0, 10, XXH64, "minimum ring size is 0, must be at least 1"},
		{ok, 1, 0, XXH64, "maximum ring size is 0, must be at least 1"},
		{ok, 11, 10, XXH64, "minimum ring size 11 exceeds maximum ring size 10"},
		{ok, 1, sizeLimit + 1, XXH64, "maximum ring size 8388609 exceeds 8388608"},
		{ok, math.MaxUint64, math.MaxUint64, XXH64, "maximum ring size 18446744073709551615 exceeds 8388608"},
		{ok, 1, 10, 2, "unknown hash function 2"},
	} {
		if _, err := New(test.hosts, test.minSize, test.maxSize, test.fn); err == nil || err.Error() != "ringhash: "+test.want {
			t.Errorf("New(%v, %d, %d, %d): error %v, want %s", test.hosts, test.minSize, test.maxSize, test.fn, err, test.want)
		}
	}
	for _, test := range []struct {
		hosts []Host
		size  uint64
		fn    Func
		want  string
	}{
		{nil, 7, XXH64, "no hosts"},
		{heavy, 7, XXH64, "sum of host weights 4294967296 exceeds 4294967295"},
		{ok, 0, XXH64, "maglev table size 0 is not prime"},
		{ok, 1, XXH64, "maglev table size 1 is not prime"},
		{ok, 65536, XXH64, "maglev table size 65536 is not prime"},
		{ok, 5000077, XXH64, "maglev table size 5000077 exceeds 5000011"},
		{ok, 7, 255, "unknown hash function 255"},
	} {
		if _, err := NewMaglev(test.hosts, test.size, test.fn); err == nil || err.Error() != "ringhash: "+test.want {
			t.Errorf("NewMaglev(%v, %d, %d): error %v, want %s", test.hosts, test.size, test.fn, err, test.want)
		}
	}
	if _, err := NewMaglev(ok, tableSizeLimit, XXH64); err != nil {
		t.Errorf("NewMaglev of the largest size: error %v", err)
	}
	for want, hosts := range map[string][]Host{"no hosts": nil, "all 1 hosts have weight 0": {{"a", 0}}, "sum of host weights 4294967296 exceeds 4294967295": heavy} {
		if _, err := mustNew(t, ok, 1, 10, XXH64).Update(hosts); err == nil || err.Error() != "ringhash: "+want {
			t.Errorf("Update(%v): error %v, want %s", hosts, err, want)
		}
	}
}

// counts returns the number of entries by host index, of n hosts.
func counts(r *Ring, n int) []int {
	list := make([]int, n)
	for p := range r.Len() {
		list[hostAt(r, p)]++
	}
	return list
}

// Figures worked out by hand from T-RING-1.
func TestApportion(t *testing.T) {
	tests := []struct {
		weights          []uint32
		minSize, maxSize uint64
		want             []int
	}{
		{[]uint32{1, 1, 1}, 1, 100, []int{1, 1, 1}},                   // one each, although 1 would do
		{[]uint32{1, 1, 1}, 10, 100, []int{4, 4, 4}},                  // ceil(10/3) each
		{[]uint32{1, 1, 1}, 10, 10, []int{4, 3, 3}},                   // targets 3.3, 6.7, 10
		{[]uint32{3, 3, 4}, 10, 20, []int{3, 3, 4}},                   // whole shares
		{[]uint32{3, 3, 4}, 7, 20, []int{3, 3, 4}},                    // ceil(2.1) = 3 for the lightest
		{[]uint32{1, 3}, 1, 100, []int{1, 3}},                         // scaled up for the lightest
		{[]uint32{1, 3}, 1, 3, []int{1, 2}},                           // unless the maximum is below: 0.75, 3
		{[]uint32{1, 1, 1, 1}, 2, 2, []int{1, 0, 1, 0}},               // hosts without an entry
		{[]uint32{1, 1, 1, 1}, 6, 6, []int{2, 1, 2, 1}},               // Envoy's example: targets 1.5, 3, 4.5, 6
		{[]uint32{0, 5, 0, 5}, 2, 2, []int{0, 1, 0, 1}},               // weight zero
		{[]uint32{1, 1}, 1023, 1023, []int{512, 511}},                 // Envoy's LargeFractionalScale
		{[]uint32{1 << 31, 1 << 30}, 1, 2, []int{2, 0}},               // 1.33 rounds up to 2
		{[]uint32{1 << 30, 1 << 31}, 1, 2, []int{1, 1}},               // 0.67 rounds up to 1
		{[]uint32{math.MaxUint32 - 1, 1}, 1024, 4096, []int{4096, 0}}, // the largest sum, with the lightest share
		{[]uint32{1, 1, 1, 997}, 4, 10, []int{1, 0, 0, 9}},            // the odd entry goes to the first
	}
	for _, test := range tests {
		hosts := make([]Host, len(test.weights))
		for i, w := range test.weights {
			hosts[i] = Host{fmt.Sprintf("host-%d", i), w}
		}
		r := mustNew(t, hosts, test.minSize, test.maxSize, XXH64)
		if got := counts(r, len(hosts)); !slices.Equal(got, test.want) {
			t.Errorf("weights %v in %d..%d: counts are %v, want %v", test.weights, test.minSize, test.maxSize, got, test.want)
		}
	}
}

// The rounding of the running sums takes this ring beyond its maximum, in Envoy
// and grpc-go alike.
func TestRoundingBeyondMaximum(t *testing.T) {
	members, sum, err := rank(benchHosts(1000))
	kit.Must(t, err)
	if got, want := apportion(members, sum, sizeLimit, sizeLimit), 8388609; got != want {
		t.Errorf("1000 hosts take %d entries, want %d", got, want)
	}
}

// Abbreviated keys have the same order as the keys, for any common prefix and length.
func TestRankSortsByKey(t *testing.T) {
	keys := []string{"", "\x00", "\x00\x00", "a", "a\x00", "a\x00\x00b", "aaaaaaaa", "aaaaaaaaa", "aaaaaaaa\x00", "b", "\xff"}
	rng := newRand(6)
	for _, prefix := range []string{"", "p", "common prefix of all keys "} {
		for range 20 {
			var hosts []Host
			for _, key := range keys {
				if rng.IntN(3) > 0 {
					hosts = append(hosts, Host{prefix + key, 1 + rng.Uint32N(2)})
				}
			}
			hosts = append(hosts, Host{prefix + "a", 1})
			rng.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
			members, _, err := rank(hosts)
			kit.Must(t, err)
			var got []int
			for _, m := range members {
				got = append(got, int(m.host))
			}
			if want, _ := slow.Rank(hosts); !slices.Equal(got, want) {
				t.Fatalf("order of %v is %v, want %v", hosts, got, want)
			}
		}
	}
}
