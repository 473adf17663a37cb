// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/xdslb/xdslb/picker/persistent"
)

// Subset returns the priority with its endpoints, of all localities together, reduced to k
// (random subsetting, A68): the endpoints whose first address has the smallest XXH64 with the
// seed. The seed is a random word that the client draws once, so that clients differ and each
// endpoint has about the same number of clients. When endpoints are added or removed, a client
// replaces no more of its endpoints than necessary.
//
// Draining endpoints do not count towards k, since they get no RPCs. Those that rank before the
// last of the k endpoints are kept in addition. They include all endpoints that were in the
// subset before they began to drain, and sessions may continue there (A55).
//
// Localities keep their positions and weights, and the same list if they keep all of their
// endpoints. O(n·log n); copies the changed lists.
//
// The component that connects to endpoints calls it, since the purpose is not to connect. Build
// ignores Policy.Subset and picks from the given endpoints.
func (p Priority) Subset(k int, seed uint64) Priority {
	ranks := p.rank(seed)
	if k >= len(ranks) {
		return p
	}
	n := 0
	for ; n < len(ranks) && k > 0; n++ {
		if !ranks[n].draining {
			k--
		}
	}
	kept := make([]int, n) // indexes in all localities together
	for i := range kept {
		kept[i] = ranks[i].index
	}
	slices.Sort(kept)

	p.Localities = slices.Clone(p.Localities)
	first := 0
	for i := range p.Localities {
		l := &p.Localities[i]
		all := l.Endpoints
		n, _ := slices.BinarySearch(kept, first+all.Len())
		if n < all.Len() {
			var list persistent.Builder[Endpoint]
			list.Follow(EndpointList{}, n)
			for _, index := range kept[:n] {
				list.Add(*all.At(index - first), -1)
			}
			l.Endpoints = list.List()
		}
		kept, first = kept[n:], first+all.Len()
	}
	return p
}

// A subsetRank is the position of an endpoint in hash order.
type subsetRank struct {
	hash     uint64
	index    int
	draining bool
}

// rank returns the endpoints of all localities in hash order.
func (p *Priority) rank(seed uint64) []subsetRank {
	var (
		digest = xxhash.NewWithSeed(seed)
		text   []byte
		ranks  []subsetRank
	)
	for i := range p.Localities {
		for _, e := range p.Localities[i].Endpoints.All() {
			text = appendAddr(text[:0], e.Addr)
			digest.ResetWithSeed(seed)
			_, _ = digest.Write(text) // never fails
			ranks = append(ranks, subsetRank{digest.Sum64(), len(ranks), e.Health == Draining})
		}
	}
	slices.SortFunc(ranks, func(a, b subsetRank) int { return cmp.Or(cmp.Compare(a.hash, b.hash), a.index-b.index) })
	return ranks
}
