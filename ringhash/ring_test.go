// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/xdslb/xdslb/bench/kit/slow"
)

var funcs = []Func{XXH3, XXH64}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x9e3779b9)) }

// randomHosts returns up to most hosts: some with the same key, some of weight
// zero, keys of all lengths, weights of all magnitudes. At least one has weight.
func randomHosts(rng *rand.Rand, most int) []Host {
	hosts := make([]Host, 1+rng.IntN(most))
	for i := range hosts {
		hosts[i].Key = strings.Repeat("k", rng.IntN(40)) + fmt.Sprint(rng.IntN(2*most))
		switch rng.IntN(4) {
		case 0:
			hosts[i].Weight = 1
		case 1:
			hosts[i].Weight = rng.Uint32N(4)
		case 2:
			hosts[i].Weight = rng.Uint32N(1000)
		default:
			hosts[i].Weight = rng.Uint32N(math.MaxUint32 / uint32(most))
		}
	}
	hosts[rng.IntN(len(hosts))].Weight++
	return hosts
}

func randomSizes(rng *rand.Rand, most int) (minSize, maxSize uint64) {
	maxSize = 1 + rng.Uint64N(uint64(most))
	return 1 + rng.Uint64N(maxSize), maxSize
}

// probesOf returns hashes that probe the edges of ring and some between.
func probesOf(rng *rand.Rand, ring []slowEntry) []uint64 {
	probes := []uint64{0, 1, math.MaxUint64 - 1, math.MaxUint64, 1 << 63, 1<<63 - 1}
	for range 30 {
		e := ring[rng.IntN(len(ring))]
		probes = append(probes, e.hash-1, e.hash, e.hash+1, rng.Uint64())
	}
	return probes
}

// TestRingMatchesOracle checks that entries, look-ups and walks are those of T-RING-1, T-RING-2 and
// T-RING-3, for random weights and sizes, and for hosts in any order (T-RING-4).
func TestRingMatchesOracle(t *testing.T) {
	rng := newRand(1)
	for range 400 {
		hosts := randomHosts(rng, 40)
		minSize, maxSize := randomSizes(rng, 1200)
		fn := funcs[rng.IntN(2)]
		r := mustNew(t, hosts, minSize, maxSize, fn)
		want := checkRing(t, r, hosts)
		for _, hash := range probesOf(rng, want) {
			pos := slowSeek(want, hash)
			if got := position(r, hash); got != pos {
				t.Fatalf("position(%#x) = %d, want %d", hash, got, pos)
			}
			if got := r.Pick(hash); got != want[pos].host {
				t.Fatalf("Pick(%#x) = %d, want %d", hash, got, want[pos].host)
			}
		}
		hash := rng.Uint64()
		walk := slices.Collect(r.Walk(hash)) // each entry once, beginning with that of the hash (A61)
		for n, pos := 0, slowSeek(want, hash); n < max(len(want), len(walk)); n++ {
			if len(walk) != len(want) || walk[n] != want[(pos+n)%len(want)].host {
				t.Fatalf("Walk(%#x) = %v, want the entries of %v from %d on", hash, walk, want, pos)
			}
		}
	}
}

// Large enough for the partition pass of the build, with shares that are not whole numbers; and one key
// for all hosts, as with a constant hash_key, which must not make the build slow.
func TestLargeRings(t *testing.T) {
	hosts := randomHosts(newRand(2), 500)
	for size, fn := range map[uint64]Func{partitionAbove: XXH3, partitionAbove + 1: XXH64} {
		checkRing(t, mustNew(t, hosts, 1, size, fn), hosts)
	}
	same := slices.Repeat([]Host{{"same", 1}}, 20_000)
	r := mustNew(t, same, 80_000, sizeLimit, XXH3)
	checkInvariants(t, r)
	if got := r.Pick(12345); got != 0 {
		t.Errorf("20000 hosts of one key: Pick(12345) = %d, want 0", got)
	}
}

// Rings that Envoy's ring_hash_lb_test.cc and grpc-go's ring.go publish.
func TestEnvoyRings(t *testing.T) {
	tests := []struct {
		name             string
		minSize, maxSize uint64
		weights          []uint32 // of 127.0.0.1:90, :91 and so on
		want             []slowEntry
	}{
		{"Basic", 12, sizeLimit, []uint32{1, 1, 1, 1, 1, 1}, []slowEntry{
			{833437586790550860, 4}, {928266305478181108, 2}, {1033482794131418490, 0},
			{3551244743356806947, 5}, {3851675632748031481, 3}, {5583722120771150861, 1},
			{6311230543546372928, 1}, {7700377290971790572, 3}, {13144177310400110813, 5},
			{13444792449719432967, 2}, {15516499411664133160, 4}, {16117243373044804889, 0},
		}},
		{"LocalityWeightedTinyRing", 6, 6, []uint32{1, 2, 3, 0}, []slowEntry{
			{928266305478181108, 2}, {4443673547860492590, 2}, {5583722120771150861, 1},
			{6311230543546372928, 1}, {13444792449719432967, 2}, {16117243373044804889, 0},
		}},
		{"HostAndLocalityWeightedTinyRing", 9, 9, []uint32{1, 2, 2, 4}, []slowEntry{
			{928266305478181108, 2}, {3851675632748031481, 3}, {5583722120771150861, 1},
			{6311230543546372928, 1}, {7700377290971790572, 3}, {12559126875973811811, 3},
			{13444792449719432967, 2}, {13784988426630141778, 3}, {16117243373044804889, 0},
		}},
	}
	for _, test := range tests {
		hosts := make([]Host, len(test.weights))
		for i, w := range test.weights {
			hosts[i] = Host{fmt.Sprintf("127.0.0.1:%d", 90+i), w}
		}
		r := mustNew(t, hosts, test.minSize, test.maxSize, XXH64)
		if got := entriesOf(t, r); !slices.Equal(got, test.want) {
			t.Errorf("%s: ring is %v, want %v", test.name, got, test.want)
		}
	}
}

// xxh64Twins returns n different keys of 16 bytes that hash alike with XXH64 when
// two more bytes follow: each lane of XXH64 can be undone, so the second makes up
// for the first. Points 0 to 9 of such hosts all collide.
func xxh64Twins(n int) []string {
	const (
		p1     = 0x9E3779B185EBCA87
		p1inv  = 0x0887493432BADB37
		p2     = 0xC2B2AE3D27D4EB4F
		p2inv  = 0x0BA79078168D4BAF
		p4     = 0x85EBCA77C2B2AE63
		p5     = 0x27D4EB2F165667C5
		length = 18
	)
	lane := func(x uint64) uint64 { return bits.RotateLeft64(x*p2, 31) * p1 }
	state := func(x uint64) uint64 { return bits.RotateLeft64((p5+length)^lane(x), 27)*p1 + p4 }
	keys := make([]string, n)
	for i := range keys {
		x := uint64(i) * golden
		k := state(x) ^ state(0) ^ lane(1)
		y := bits.RotateLeft64(k*p1inv, -31) * p2inv
		keys[i] = string(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, x), y))
	}
	return keys
}

// Entries of equal hash are in the order of host keys, for any order of the hosts, so the first
// of them gets all requests.
func TestCollidingHosts(t *testing.T) {
	keys := xxh64Twins(6)
	for _, key := range keys[1:] {
		if key == keys[0] || slow.Point(key, 7, true) != slow.Point(keys[0], 7, true) {
			t.Fatal("keys do not collide")
		}
	}
	rng := newRand(3)
	for range 100 {
		hosts := []Host{{"a", 1}, {"b", 2}, {"c", 1}}
		for _, key := range keys {
			hosts = append(hosts, Host{key, 1 + rng.Uint32N(2)})
		}
		rng.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
		r := mustNew(t, hosts, 40, 40, XXH64)
		checkRing(t, r, hosts)
		hash := slow.Point(keys[0], 0, true)
		if got, want := hosts[r.Pick(hash)].Key, slices.Min(keys); got != want {
			t.Fatalf("Pick(%#x) = host %q, want %q", hash, got, want)
		}
	}
}

// Hosts with the same key share their points: the heaviest gets the requests and the others
// follow it on the ring, for any order of the list.
func TestHostsWithSameKey(t *testing.T) {
	hosts := []Host{{"x", 1}, {"x", 3}, {"y", 2}, {"x", 2}}
	for _, fn := range funcs {
		r := mustNew(t, hosts, 64, 64, fn)
		want := []int{1, 3, 0}
		for host := range r.Walk(slow.Point("x", 0, fn == XXH64)) {
			if host != want[0] {
				t.Errorf("the walk has host %d, want %d", host, want[0])
			}
			if want = want[1:]; len(want) == 0 {
				break
			}
		}
	}
}

func TestPicksDoNotAllocate(t *testing.T) {
	r := mustNew(t, benchHosts(100), 4096, 4096, XXH64)
	v := r.Restrict([]bool{99: true})
	m := mustMaglev(t, benchHosts(10), 251, XXH64)
	key := strings.Repeat("header value ", 20)
	hash := uint64(0)
	for name, f := range map[string]func(){
		"Ring.Pick":   func() { sink += r.Pick(hash) },
		"View.Pick":   func() { host, _ := v.Pick(hash); sink += host },
		"Maglev.Pick": func() { sink += m.Pick(hash) },
		"Probe":       func() { sink += int(Probe(XXH3.Sum(key), 3)) + int(Probe(XXH64.Sum(key), 3)) },
		"Ring.Walk": func() {
			for host := range r.Walk(hash) {
				if sink += host; host > 50 {
					break
				}
			}
		},
	} {
		if got := testing.AllocsPerRun(1000, func() { hash += golden; f() }); got != 0 {
			t.Errorf("%s allocates %v times, want 0", name, got)
		}
	}
}

// The memory that the documentation of Ring promises, and the number of
// allocations of a build, which does not depend on its size.
func TestMemory(t *testing.T) {
	if got := unsafe.Sizeof(member{}); got > 32 {
		t.Errorf("a host takes %d bytes, want at most 32", got)
	}
	if got := unsafe.Sizeof(entry{}); got != 12 {
		t.Errorf("an entry takes %d bytes, want 12", got)
	}
	hosts := benchHosts(1000)
	for _, n := range []uint64{4096, 5000, 65536, 65537} {
		r := mustNew(t, hosts, n, n, XXH64)
		if got, want := cap(r.entries), r.Len()+1; got != want {
			t.Errorf("capacity of %d for %d entries, want %d", got, r.Len(), want)
		}
		if got, limit := 4*cap(r.start), 8*r.Len()+4; got > limit {
			t.Errorf("index of %d entries takes %d bytes, want at most %d", r.Len(), got, limit)
		}
		if v := r.Restrict(nil); &v.entries[0] != &r.entries[0] {
			t.Errorf("a view of no hosts of a ring of %d has entries of its own", n)
		}
		if v := r.Restrict(slices.Repeat([]bool{true}, len(hosts))); &v.entries[0] != &r.entries[0] {
			t.Errorf("a view of all hosts of a ring of %d has entries of its own", n)
		}
		allocs := testing.AllocsPerRun(1, func() { mustNew(t, hosts, n, n, XXH64) })
		if allocs > 20 {
			t.Errorf("New with %d entries allocates %v times, want at most 20", n, allocs)
		}
	}
}
