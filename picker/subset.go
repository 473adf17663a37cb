// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Subset returns the indexes, in ascending order, of the k endpoints that a client
// with this seed keeps of a list (random subsetting, A68): those whose first
// address has the smallest XXH64 with the seed. The seed is a random word that the
// client draws once, so that clients differ and each endpoint has about as many of
// them as any other. When endpoints come or go a client changes no more of its own
// than it must. O(n·log n).
//
// Subsetting is up to whoever connects to endpoints, since not to connect is the
// point of it: Build ignores Policy.Subset and picks from the endpoints that it is
// given, which are the subset then (Priority.Subset).
func Subset(endpoints []Endpoint, k int, seed uint64) []int {
	s := newSubsetter(seed)
	for i := range endpoints {
		s.add(&endpoints[i])
	}
	return s.smallest(k)
}

// Subset returns the priority that is left when its endpoints, of all localities
// together, are cut down to k as Subset does. Localities keep their places and
// weights, and those that keep all of their endpoints the very slice. O(n·log n);
// copies what changes.
func (p Priority) Subset(k int, seed uint64) Priority {
	s := newSubsetter(seed)
	for i := range p.Localities {
		for j := range p.Localities[i].Endpoints {
			s.add(&p.Localities[i].Endpoints[j])
		}
	}
	if k >= len(s.ranks) {
		return p
	}
	kept, first := s.smallest(k), 0
	p.Localities = slices.Clone(p.Localities)
	for i := range p.Localities {
		l := &p.Localities[i]
		all := l.Endpoints
		n, _ := slices.BinarySearch(kept, first+len(all))
		if n < len(all) {
			l.Endpoints = make([]Endpoint, n)
			for j, index := range kept[:n] {
				l.Endpoints[j] = all[index-first]
			}
		}
		kept, first = kept[n:], first+len(all)
	}
	return p
}

// A subsetter ranks endpoints by their hash.
type subsetter struct {
	seed   uint64
	digest *xxhash.Digest
	text   []byte
	ranks  []hashRank
}

type hashRank struct {
	hash  uint64
	index int
}

func newSubsetter(seed uint64) *subsetter {
	return &subsetter{seed: seed, digest: xxhash.NewWithSeed(seed)}
}

func (s *subsetter) add(e *Endpoint) {
	s.text = e.Addr.AppendTo(s.text[:0])
	s.digest.ResetWithSeed(s.seed)
	_, _ = s.digest.Write(s.text) // never fails
	s.ranks = append(s.ranks, hashRank{s.digest.Sum64(), len(s.ranks)})
}

// smallest returns the indexes of the k endpoints with the smallest hashes.
func (s *subsetter) smallest(k int) []int {
	slices.SortFunc(s.ranks, func(a, b hashRank) int { return cmp.Or(cmp.Compare(a.hash, b.hash), a.index-b.index) })
	indexes := make([]int, 0, min(max(k, 0), len(s.ranks)))
	for _, r := range s.ranks[:cap(indexes)] {
		indexes = append(indexes, r.index)
	}
	slices.Sort(indexes)
	return indexes
}
