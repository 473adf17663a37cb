// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"slices"

	"github.com/xdslb/xdslb/ringhash"
)

// A fadeIn is slow start among the hosts of a placement. The placement has a host in slow start with its
// full weight, but the host gets only some of the hashes that belong to it. The other hashes stay with the
// host that they would belong to without the hosts in slow start. So no hash moves between other hosts,
// and each moves to the new host once, at a time that depends on the hash only.
type fadeIn struct {
	shares []uint64 // by host: the share of its hashes that it gets, in units of 2^-64
	warm   *view    // hosts that are neither cold nor in TRANSIENT_FAILURE
	cold   []bool   // by host: in slow start, or not READY yet
}

// fadeProbe is the number of the hash that decides whether an RPC goes to a host in slow start. It differs
// from the numbers that views and bounds use.
const fadeProbe = 64

// host returns host, to which hash belongs, or the host that gets hash for now. O(1); does not allocate.
func (f *fadeIn) host(hash uint64, host int) int {
	if ringhash.Probe(hash, fadeProbe) <= f.shares[host] {
		return host
	}
	host, _ = f.warm.find(hash)
	return host
}

// weight returns the weight w of a host, reduced during slow start. f may be nil.
func (f *fadeIn) weight(host int, w uint32) uint64 {
	if f == nil {
		return uint64(w)
	}
	return uint64(w) * (f.shares[host]>>32 + 1) >> 32
}

// fadeIn returns the slow start of the endpoints of in, whose placement and states h has. before is the
// previous form of h, or nil. The result is nil if no endpoint is in slow start, or if all usable ones are cold.
func (b *builder) fadeIn(h, before *hashing, in *groupInput, start *SlowStart) (*fadeIn, error) {
	if start == nil {
		return nil, nil
	}
	f := &fadeIn{shares: make([]uint64, len(h.states)), cold: make([]bool, len(h.states))}
	warm, inWindow := false, false
	for i, s := range h.states {
		f.shares[i] = math.MaxUint64
		if s == TransientFailure {
			continue
		}
		e := in.endpoints.State(i)
		age := age(e, b.env.Now)
		if f.cold[i] = e.Cold && (s != Ready || age < start.Window); !f.cold[i] {
			warm = true
		} else if s == Ready {
			inWindow = true
			if factor := start.factor(age); factor < 1 {
				f.shares[i] = uint64(factor * (1 << 64))
			}
		}
	}
	b.inSlowStart = inWindow
	if !inWindow || !warm {
		return nil, nil
	}
	p := *h.placement
	if before != nil && before.fadeIn != nil && h.sameHosts(before) && slices.Equal(f.cold, before.fadeIn.cold) {
		if slices.Equal(h.states, before.states) {
			f.warm = before.fadeIn.warm
			return f, nil
		}
		if p.table != nil {
			p.table = before.fadeIn.warm.table
		}
	} else if p.table != nil {
		hosts := slices.Clone(p.hosts)
		for i, cold := range f.cold {
			if cold {
				hosts[i].Weight = 0
			}
		}
		var err error
		if p.table, err = ringhash.NewMaglev(hosts, p.spec.minSize, p.spec.fn); err != nil {
			return nil, err
		}
	}
	states := slices.Clone(h.states)
	for i, cold := range f.cold {
		if cold {
			states[i] = TransientFailure
		}
	}
	f.warm = newView(&p, states, notFailed)
	return f, nil
}

// fadeInOdds corresponds to fadeIn.host: it returns the probabilities belong of the hosts, of which some of those
// of hosts in slow start have moved to warm ones. It is exact for a ring with one cold host. With several the moved RPCs
// are distributed as if all cold hosts had the same share, and a table differs a little from the table of warm
// hosts. stays reports whether an RPC stays with its host rather than wait for a warm one (pickAny).
func (h *hashing) fadeInOdds(belong []float64, stays func(host int) bool) []float64 {
	f := h.fadeIn
	odds, gain, usual := slices.Clone(belong), f.warm.odds(len(belong)), h.notFailed.odds(len(belong))
	all := 0.
	for i := range gain {
		gain[i] = max(gain[i]-usual[i], 0)
		all += gain[i]
	}
	move := 0. // the part of the gains that moves
	for i := range gain {
		if gain[i] /= max(all, 1e-12); stays(i) {
			gain[i] = 0
		}
		move += gain[i]
	}
	moved := 0.
	for i, share := range f.shares {
		if share < math.MaxUint64 {
			m := belong[i] * (1 - float64(share)/(1<<64))
			odds[i] -= m * move
			moved += m
		}
	}
	for i := range odds {
		odds[i] += moved * gain[i]
	}
	return odds
}
