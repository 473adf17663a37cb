// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"
)

// Func selects the hash function of a [Ring] or [Maglev] and of the requests that are looked up
// in it. Both sides must use the same function, so that a request goes to the same host in all
// clients with this function. The zero value is XXH3.
type Func uint8

const (
	// XXH3 hashes a host key once with XXH3 and derives the points of the host from the result
	// by mixing. It builds faster. Its placement is specific to this package: other proxies and
	// clients do not agree with it.
	XXH3 Func = iota

	// XXH64 hashes "key_0", "key_1" and so on with XXH64 and seed 0, which is
	// the placement of Envoy, gRPC C++ and grpc-go (gRFC A42, T-RING-2). Fleets
	// that mix clients need this one.
	XXH64
)

// Sum returns the hash of a request key. It does not allocate.
func (f Func) Sum(s string) uint64 {
	if f == XXH64 {
		return xxhash.Sum64String(s)
	}
	return xxh3.HashString(s)
}

// sumSeed1 is Sum with seed 1, the second hash that [Maglev] needs.
func (f Func) sumSeed1(s string) uint64 {
	if f == XXH64 {
		d := xxhash.NewWithSeed(1)
		d.WriteString(s) // never fails
		return d.Sum64()
	}
	return xxh3.HashStringSeed(s, 1)
}

func (f Func) validate() error {
	if f > XXH64 {
		return fmt.Errorf("ringhash: unknown hash function %d", uint8(f))
	}
	return nil
}

// golden is the odd integer nearest to 2^64 divided by the golden ratio, so the
// multiples of it are spread evenly over the 64-bit integers.
const golden = 0x9E3779B97F4A7C15

// mix is the bijective finalizer of SplitMix64 (Steele, Lea, Flood: "Fast
// Splittable Pseudorandom Number Generators", 2014; the constants are Stafford's
// variant 13).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// points sets dst[k] to point from+k of the host with this key. A point depends only on the key
// and the number of the point, which [Ring.Update] requires.
func (f Func) points(dst []entry, key string, host, from uint32) {
	if f == XXH64 {
		pointsXXH64(dst, key, host, from)
		return
	}
	z := xxh3.HashString(key) + uint64(from)*golden
	for k := range dst {
		z += golden
		dst[k] = newEntry(mix(z), host)
	}
}

// pointsXXH64 increments the decimal text in place: formatting each number would cost more than
// hashing it.
func pointsXXH64(dst []entry, key string, host, from uint32) {
	const maxDigits = 10
	text := make([]byte, 0, len(key)+1+maxDigits)
	text = append(text, key...)
	text = append(text, '_')
	first := len(text)
	text = strconv.AppendUint(text, uint64(from), 10)
	for k := range dst {
		dst[k] = newEntry(xxhash.Sum64(text), host)
		i := len(text) - 1
		for i >= first && text[i] == '9' {
			text[i] = '0'
			i--
		}
		if i >= first {
			text[i]++
			continue
		}
		// All digits were nines and are zeros now: 999 -> 000 -> 1000.
		text[first] = '1'
		text = append(text, '0')
	}
}

// Probe returns the hash to look up in the k-th attempt to place a request with a given hash,
// where attempt 0 is the hash itself. It is the primitive for bounded loads (Envoy's
// hash_balance_factor): while the host of attempt k is overloaded, try k+1, up to a limit. Each
// attempt jumps to an independent position (Chen, Coleman, Shrivastava: "Revisiting Consistent
// Hashing with Bounded Loads", arXiv 1908.08762), so the overflow of one host spreads over all
// other hosts rather than onto its successor in the ring. A step costs O(1) and does not
// allocate.
//
// The attempts depend only on the hash, so all clients that see the same loads agree.
func Probe(hash uint64, k int) uint64 {
	if k == 0 {
		return hash
	}
	// Counts down, while XXH3's points count up: a request whose hash equals that of a host key
	// would otherwise find that same host in each attempt.
	return mix(hash - uint64(k)*golden)
}
