// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "github.com/xdslb/xdslb/ringhash"

// bounds limit how many RPCs a host of a hashing may have in flight, relative to
// its share of all (Envoy's hash_balance_factor): what is beyond goes elsewhere, to
// the host of another attempt of its hash (ringhash.Probe), so that one popular
// hash does not take its host down.
//
// The total is that of the circuit breaker, which is Envoy's rule as well: a
// count of the group's own would cost each RPC two additions. If several channels
// share the breaker, the bounds of each are wider than they need to be.
type bounds struct {
	factor uint64   // in percent
	shares []uint32 // by host, in 2^-32; a host of all has one less
}

// How often an RPC whose host is full tries to be placed elsewhere. The first
// attempts depend on its hash alone, so that what a popular hash has too much goes
// to the same few hosts, in this client as in others. If these are full as well the
// rest of the attempts are random: they find room for all but one RPC in 600 while
// two thirds of the hosts are full, which is the worst that a factor of 150 allows.
const (
	fixedProbes  = 8
	randomProbes = 8
)

// newBounds returns the bounds for a factor in percent, or nil if that is 0. It
// takes Build O(hosts) each time that states change; picks must not divide.
func newBounds(p *placement, factor uint32) *bounds {
	if factor == 0 {
		return nil
	}
	b := &bounds{factor: uint64(factor), shares: make([]uint32, len(p.hosts))}
	for i, h := range p.hosts {
		b.shares[i] = uint32(min(uint64(h.Weight)<<32/p.total, 1<<32-1))
	}
	return b
}

// slots returns how many RPCs host may have in flight if all of them have so many:
// its share of factor times them, this one included, rounded up, and at least one.
func (b *bounds) slots(host int, all int64) int64 {
	total := (uint64(min(max(all, 0), 1<<31)+1)*b.factor + 99) / 100
	total = min(total, 1<<31)
	return max(int64((total*uint64(b.shares[host])+(1<<32-1))>>32), 1)
}

// balance returns host, which is READY, unless that has more RPCs in flight than
// its bound, the total being all: then the first of other attempts to place hash
// that comes to a READY host within its bound, or else the least loaded of those
// hosts. r is a random word. O(1); does not allocate.
func (h *hashing) balance(hash uint64, host int, all int64, endpoints []*EndpointState, r uint64) int {
	load := int64(endpoints[host].inFlight.Load())
	slots := h.load.slots(host, all)
	for k := 1; load > slots && k <= fixedProbes+randomProbes; k++ {
		if k == fixedProbes+1 {
			hash = draw(r, drawProbe)
		}
		other, ok := h.ready.find(ringhash.Probe(hash, k))
		if !ok || other == host {
			continue
		}
		l, s := int64(endpoints[other].inFlight.Load()), h.load.slots(other, all)
		if l*slots < load*s {
			host, load, slots = other, l, s
		}
	}
	return host
}
