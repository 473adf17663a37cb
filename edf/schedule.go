// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	// origin is the approximate start of positions. It leaves room for tickets before the first
	// one, and for 2^63 after it.
	origin = 1 << 48

	// padding separates written fields from read-only ones. It is two cache lines, because
	// neighbors are prefetched in pairs and because the runtime does not align larger objects
	// to cache lines.
	padding = 128
)

// A Schedule is an EDF sequence for concurrent use.
//
// Config.Schedule makes it. A Schedule must not be copied. It is safe for concurrent use. At
// takes no lock, and allocates at most seven times in the life of a Schedule, when its table
// grows. They do not wait for a goroutine that is off its CPU. If
// the period is not in memory and picks are drawn faster than they can be made, they wait some
// microseconds for the goroutine that makes them.
//
// Equal weights take no memory beyond the Schedule. Otherwise it takes a queue and initially 2
// KiB. As picks are drawn, a period of n endpoints is stored in memory, 2 bytes for each pick,
// if it has at most max(2^16, min(512·n, 2^19), 16·n) picks. Once it has been drawn from end to
// end, only the weights of the queue are kept. A longer period takes up to 16 KiB and the queue.
// With more than 65536 endpoints it is 4 bytes for each pick, or 32 KiB.
type Schedule struct {
	_ [0]sync.Mutex

	// Written by the constructor only.
	offset  uint64 // position minus ticket
	modulus uint64 // of positions: the period, or 1<<63 if it is not stored in memory
	inverse uint64 // floor((2^64-1)/modulus)
	// table has the picks. It is nil if all endpoints have the same weight: then position is
	// index. Picks replace it.
	table  atomic.Pointer[table]
	buffer *buffer // fills table; nil if table is nil
	start  uint64  // below the period
	base   uint64
	layout // has only the totals if there is no table
}

// Schedule returns the sequence that c describes, or an error for invalid weights. It does not
// keep c.Weights. O(n log n), or
// O(n) for equal weights.
func (c Config) Schedule() (*Schedule, error) {
	return c.schedule(longest(len(c.Weights)), window)
}

// longest returns the maximum number of picks of a period that is stored in memory.
func longest(endpoints int) uint64 {
	n := uint64(endpoints)
	return max(1<<16, min(n<<9, 1<<19), n<<4)
}

// schedule is Schedule with the longest period to store and the length of a window, which is a
// power of two and at least two blocks.
func (c Config) schedule(longest, window uint64) (*Schedule, error) {
	t, err := c.totals()
	if err != nil {
		return nil, err
	}
	l := &layout{total: t}
	if !t.even() {
		l = newLayout(c.Weights, t)
	}
	return l.schedule(c.Start, c.Base, longest, window), nil
}

// schedule returns the Schedule of l.
func (l *layout) schedule(start, base, longest, window uint64) *Schedule {
	period := l.total.period()
	s := &Schedule{
		modulus: period,
		start:   start % period,
		base:    base,
		layout:  *l,
	}
	first := origin / period * period // the position of the first pick
	if l.total.even() {
		s.layout = layout{total: l.total}
		first += s.start
	} else {
		h := l.queue()
		h.seek(s.start)
		s.buffer = newBuffer(&s.table, h, period <= longest, window)
		if period > longest {
			s.modulus, first = endless, origin
		}
	}
	s.offset = first - s.base
	s.inverse = math.MaxUint64 / s.modulus
	return s
}

// At returns the pick of a ticket: ticket Base+k draws pick number Start+k of the sequence. The
// caller has the counter of tickets, since it may count picks anyway, or distribute tickets in
// batches.
//
// Tickets should come from a counter that only increases. They may leave gaps, and come in any
// order that results from goroutines overtaking each other. A ticket from far ahead moves a
// window along, and tickets left behind count as fallbacks.
//
// O(1) if the period is stored in memory, otherwise O(log n) on average, paid by one pick in
// 64, and O(n) after a gap of more than 8192.
func (s *Schedule) At(ticket uint64) int {
	p := s.position(ticket)
	t := s.table.Load()
	if t == nil {
		return int(p)
	}
	if p < t.ready.Load() {
		index := t.load(p & t.mask)
		// Checked after the read: if the entry had been overwritten before, oldest would be
		// higher.
		if p >= t.oldest.Load() {
			return index
		}
	}
	return s.buffer.atEdge(p)
}

// position returns the position of a ticket, reduced by the modulus. With inverse =
// (2^64-1-e)/modulus and 0 <= e < modulus, the estimated quotient falls short of p/modulus by
// p*(1+e)/(modulus*2^64) <= p/2^64 < 1. So, rounded down, it is exact or one too small, for all
// p and any modulus, including 1. Two multiplications cost less than a division by a variable.
func (s *Schedule) position(ticket uint64) uint64 {
	p := ticket + s.offset
	quotient, _ := bits.Mul64(p, s.inverse)
	p -= quotient * s.modulus
	if p >= s.modulus {
		p -= s.modulus
	}
	return p
}

// period returns the number of picks after which the sequence repeats: the sum of the
// weights divided by their greatest common divisor.
func (s *Schedule) period() uint64 { return s.total.period() }

// Place returns the number of picks of a period that precede the pick of ticket.
func (s *Schedule) Place(ticket uint64) uint64 {
	period := int64(s.period())
	since := int64(ticket-s.base) % period
	return uint64((int64(s.start) + since + period) % period)
}

// Reweigh returns the Schedule that continues s from ticket on with new weights for the same
// endpoints, at the place in virtual time that s has reached there: endpoints with an unchanged
// weight are as far from their next pick as before, give or take a pick.
//
// It returns an error for weights that Config calls invalid and if their number differs from
// the number of endpoints in s. s stays usable. For another set of endpoints make a new Schedule with a random
// start. O(n) if few weights change, otherwise O(n log n).
func (s *Schedule) Reweigh(weights []uint32, ticket uint64) (*Schedule, error) {
	if len(weights) != s.total.endpoints {
		return nil, fmt.Errorf("edf: weights: %d endpoints, want %d as before", len(weights), s.total.endpoints)
	}
	if changes, ok := s.layout.differences(weights); ok {
		if next, err := s.reweighSome(changes, ticket); next != nil || err != nil {
			return next, err
		}
	}
	c := Config{Weights: weights, Base: ticket}
	t, err := c.totals()
	if err != nil {
		return nil, err
	}
	c.Start = s.total.continued(t, s.Place(ticket))
	return c.Schedule()
}

// ReweighSome is Reweigh for a few changed weights. Its cost depends on the number of changes
// and of distinct weights, and little on the number of endpoints: O(m + n/32) for m distinct
// weights, and in the worst case O(n). It costs as much as Reweigh if all weights were equal,
// or if the new weights exceed the range of the common divisor.
func (s *Schedule) ReweighSome(changes []Change, ticket uint64) (*Schedule, error) {
	for _, ch := range changes {
		if n := s.total.endpoints; ch.Index < 0 || ch.Index >= n {
			return nil, fmt.Errorf("edf: weights: endpoint %d is out of range of %d", ch.Index, n)
		}
	}
	if s.buffer != nil {
		if next, err := s.reweighSome(changes, ticket); next != nil || err != nil {
			return next, err
		}
	}
	weights := s.Weights()
	for _, ch := range changes {
		weights[ch.Index] = ch.Weight
	}
	return s.Reweigh(weights, ticket)
}

// reweighSome returns nil without an error if the Schedule must be made from all weights.
func (s *Schedule) reweighSome(changes []Change, ticket uint64) (*Schedule, error) {
	l, err := s.layout.with(changes)
	if l == nil || err != nil {
		return nil, err
	}
	start := s.total.continued(l.total, s.Place(ticket))
	return l.schedule(start, ticket, longest(l.total.endpoints), window), nil
}

// Weights returns the weights of all endpoints. O(n).
func (s *Schedule) Weights() []uint32 {
	weights := make([]uint32, s.total.endpoints)
	for i := range weights {
		weights[i] = s.layout.weight(i)
	}
	return weights
}

// Compare reports whether weights equal the weights of s, and whether the same endpoints have a
// weight above zero. O(n); does not allocate.
func (s *Schedule) Compare(weights []uint32) (same, active bool) {
	if len(weights) != s.total.endpoints {
		return false, false
	}
	same = true
	for i, w := range weights {
		if was := s.layout.weight(i); was != w {
			if same = false; (was > 0) != (w > 0) {
				return false, false
			}
		}
	}
	return same, true
}

// fallbacks returns the number of picks that were out of sequence, because the goroutine that
// makes picks was off its CPU, or because the ticket was late or jumped ahead. They were picks
// of a nearby part of the sequence instead, which preserves the shares. It is 0 if the period
// has at most 256 picks. It is for monitoring, and for tests that depend on the exact order.
func (s *Schedule) fallbacks() uint64 {
	if s.buffer == nil {
		return 0
	}
	return s.buffer.fallbacks.Load()
}
