// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package ringhash provides consistent hashing: requests with the same hash go to the same host
// for as long as that host exists, by a ring ([Ring], gRFC A42) or a Maglev table ([Maglev]).
// It maps a hash to the index of one of a list of weighted hosts, and does not depend on
// connections.
//
// # Problem
//
// A ring is looked up for each request and rebuilt whenever a host is added, is removed or
// changes its weight. In common implementations an entry is a pointer to a heap object with the
// key of its host, its hash is computed from a separate string, the entries are sorted by
// comparison, and a lookup is a binary search through the pointers, followed by a lookup in a
// map of host states for each entry that is skipped. With 4096 entries that takes about 80 ns
// while all hosts are up, and about 100 µs per request when all hosts are down.
//
// # Structure
//
//	hash ──▶ bucket = leading bits ──▶ start[bucket] ──▶ entries[p].hash >= hash ? ──▶ entries[p].host
//
//	start    0    0       2   3      3   ...     4 bytes per bucket; as many buckets as entries or up to twice that
//	         │     \      │   │      │
//	entries  00.. 1f..   4a..  61..   ...  ff..  12 bytes per entry: hash and host; the last one is a sentinel
//
// Points on the circle are uniform, so the leading bits of a hash determine its position to
// within one entry on average. A build is therefore a counting sort by leading bits, and the
// resulting offsets are the index of all lookups: a pick takes two dependent loads and one or
// two comparisons, regardless of the size of the ring (BenchmarkPick, BenchmarkBuild). There is
// no allocation per entry.
//
// The sentinel's hash ends each scan and its host, which is that of the first entry, closes the
// circle; so Pick neither checks for the end nor wraps around (T-RING-3).
//
// An update keeps the entries of unchanged hosts. Point i of a host is a function of its key
// and of i, and a host with k entries owns points 0 to k-1: comparing the old k with the new
// one yields the entries to drop and to add, and a single merge does the rest ([Ring.Update],
// BenchmarkUpdate).
//
// # Failed hosts
//
// Health is not part of the ring: requests must return to a host when it recovers. In gRFC A61
// the picker walks from the entry of the request to the first host that is not in
// TRANSIENT_FAILURE. [Ring.Restrict] does all those walks at once, backwards, in a single pass,
// when a state changes: the entries of the [View] name the next usable host instead of their
// own, so a pick from it costs the same with all hosts up, one up, or none (BenchmarkPickDown).
// Limiting the number of probes instead would need a state array on the hot path and would give
// up where A61 does not; skip pointers would need a second load per pick.
//
// A host that is new can be treated in the same way for a part of its requests, chosen by another hash of them
// ([Probe]): a view without the host has the hosts that these requests belonged to before it.
//
// # Placement
//
// [XXH64] is the placement of Envoy, gRPC C++ and grpc-go, bit for bit, for fleets that mix
// clients or migrate between them. Counts of entries result from the same sums in the same
// order in float64, including where these exceed the maximum size by one (T-RING-1); products
// are rounded before they are added, as on amd64, so that all platforms agree. [XXH3] has the
// same counts but different points: the key is hashed once and the number of the point is mixed
// in. It builds faster and is as balanced.
//
// Where shares are not whole numbers, the order of hosts decides which host gets the odd entry
// (T-RING-4). Hosts are ordered by key, as in grpc-go, so the ring depends only on the set of
// keys and weights, and not on the order of a list or on earlier updates (go#6927). Envoy uses
// the order of its list, and agrees for sorted lists and for whole shares. Entries of equal
// hash are in the order of their hosts. In other implementations that order depends on the
// sort.
//
// Hosts may have the same key, since an A76 hash_key is arbitrary. They own the same points.
// The heaviest of them gets the requests (the first in the list, if they have the same weight),
// and the other hosts follow on the ring if it fails. That is not an error, since an error
// would take down all hosts because of two.
//
// # Ring or Maglev
//
// Both move about 1/N of the requests when one of N hosts changes. A ring moves no other
// requests (some, if its maximum size makes the shares fractional), and its largest share over
// the mean is about 1.5 at 40 entries per host and 1.1 at 650. A Maglev table of the default
// size is even to 1 % for up to 1000 hosts and is faster to look up, but moves 0.2 to 0.6 % of
// all requests between other hosts as well, and gRPC itself has no such policy (TestBalance,
// TestRingMovesLittle, TestMaglevMovesLittle).
//
// Either is extended to bounded loads by [Probe].
//
// # Caveats
//
// Request hashes must be uniform, as the hashes of [Func.Sum] are. The mean cost of a pick then
// holds for any hosts. Neither hash is secure against an attacker who chooses the keys of
// hosts: colliding host keys lengthen the scan of their buckets, and thousands of points in one
// bucket make a build quadratic in them.
//
// # Sources
//
// gRFCs A42 (ring_hash), A61 (walk past failed hosts), A76 (hash_key, random hash), A113
// (weights); Envoy's ring_hash_lb.cc and maglev_lb.cc for the placement; Karger et al.,
// "Consistent Hashing and Random Trees", STOC 1997; Eisenbud et al., "Maglev: A Fast and
// Reliable Software Network Load Balancer", NSDI 2016; Chen, Coleman, Shrivastava, "Revisiting
// Consistent Hashing with Bounded Loads", arXiv 1908.08762.
//
// Ids such as T-RING-3 are explained in integrate/docs/requirements.tsv.
package ringhash
