// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	// origin is about where positions start. It leaves room for tickets from before the
	// first one, and for 2^63 after it.
	origin = 1 << 48

	// padding keeps what is written apart from what is only read. It is two cache lines,
	// because neighbours are prefetched in pairs and because the runtime does not align
	// larger objects to cache lines.
	padding = 128
)

// A Schedule is an EDF sequence that any number of goroutines draw from.
//
// The zero Schedule is not usable; NewSchedule makes one. A Schedule must not be copied.
// All methods may be called at any time. Next and At take no lock and do not allocate. They wait
// for no goroutine that is off its CPU; if drawn from faster than picks can be made, and unless
// the period is in memory, they wait some microseconds for one that is making them.
//
// Equal weights take no memory beyond the Schedule. Otherwise it holds 2 bytes for each
// pick of a period (4 if there are more than 65536 endpoints) up to 128 KiB or, if that
// is more, 1 KiB for each endpoint up to 1 MiB, or 32 bytes for each (64) beyond. A
// longer period costs 16 KiB (32) and a Heap for good, a shorter one a Heap until it has
// been drawn from end to end.
type Schedule struct {
	_ [0]sync.Mutex

	// Written by the constructor only.
	offset  uint64   // position minus ticket
	modulus uint64   // of positions: the period, or 1<<63 if it is not held in memory
	inverse uint64   // floor((2^64-1)/modulus)
	stretch *stretch // nil if all endpoints have the same weight: position is index
	start   uint64   // below the period
	base    uint64
	total   totals
	spread  bool

	_    [padding]byte
	next atomic.Uint64 // ticket
	_    [padding]byte
}

// NewSchedule returns the EDF sequence of weights from position start, for tickets from
// zero. Unless the very order matters, pass a random word as start: clients that all
// learn of the weights at once and begin at zero begin with the same endpoint. It fails
// on weights that Config calls invalid. It does not keep weights. O(n log n).
func NewSchedule(weights []uint32, start uint64) (*Schedule, error) {
	return Config{Weights: weights, Start: start}.Schedule()
}

// Schedule returns the sequence that c describes. It does not keep c.Weights.
// O(n log n), for equal weights O(n).
func (c Config) Schedule() (*Schedule, error) {
	return c.schedule(longest(len(c.Weights)), window)
}

// longest returns the number of picks in the longest period to be held in memory.
func longest(endpoints int) uint64 {
	n := uint64(endpoints)
	return max(1<<16, min(n<<9, 1<<19), n<<4)
}

// schedule is Schedule with the longest period to hold and the length of a window, which
// is a power of two and at least two blocks.
func (c Config) schedule(longest, window uint64) (*Schedule, error) {
	t, err := c.totals()
	if err != nil {
		return nil, err
	}
	period := t.period()
	s := &Schedule{
		modulus: period,
		start:   c.Start % period,
		base:    c.Base,
		total:   t,
		spread:  c.Spread,
	}
	first := origin / period * period // the position of the first pick
	if t.equal() && t.active == t.endpoints {
		first += s.start
	} else {
		h := newHeap(c.Weights, t, c.Spread)
		h.Seek(s.start)
		s.stretch = newStretch(h, period <= longest, window)
		if period > longest {
			s.modulus, first = endless, origin
		}
	}
	s.offset = first - s.base
	s.inverse = math.MaxUint64 / s.modulus
	s.next.Store(s.base)
	return s, nil
}

// Next returns the next pick: At with a ticket from a counter of the Schedule's own,
// which begins at Base. Under contention the counter is what it costs. Does not allocate.
func (s *Schedule) Next() int { return s.At(s.next.Add(1) - 1) }

// Ticket returns the ticket that the next call of Next will draw.
func (s *Schedule) Ticket() uint64 { return s.next.Load() }

// At returns the pick that a ticket stands for: ticket Base+k draws pick number Start+k of
// the sequence. It is for callers that count picks anyway and would not count them twice,
// or that deal out tickets in batches; they should not call Next as well.
//
// Tickets should be drawn from a counter that only goes up. They may leave gaps, and come in
// any order that goroutines overtaking each other produce. Where a window slides along, one
// from far ahead takes it along, and those left behind count as Fallbacks.
//
// O(1) if the period is held in memory, otherwise O(log n) on average, paid by one pick in 64,
// and O(n) after a gap of more than 8192; does not allocate.
func (s *Schedule) At(ticket uint64) int {
	p := s.position(ticket)
	t := s.stretch
	if t == nil {
		return int(p)
	}
	if p < t.ready.Load() {
		index := t.load(p & t.mask)
		// Only now: had the entry been overwritten before it was read, oldest would say so.
		if p >= t.oldest.Load() {
			return index
		}
	}
	return t.atEdge(p)
}

// position returns the position of a ticket, reduced by the modulus. With inverse =
// (2^64-1-e)/modulus and 0 <= e < modulus, the estimated quotient falls short of
// p/modulus by p*(1+e)/(modulus*2^64) <= p/2^64 < 1. So, rounded down, it is right or one
// too small, for all p and any modulus, 1 included. Two multiplications cost less than one
// division by a number that only run time knows.
func (s *Schedule) position(ticket uint64) uint64 {
	p := ticket + s.offset
	quotient, _ := bits.Mul64(p, s.inverse)
	p -= quotient * s.modulus
	if p >= s.modulus {
		p -= s.modulus
	}
	return p
}

// Period returns the number of picks after which the sequence repeats: the sum of the
// weights divided by their greatest common divisor.
func (s *Schedule) Period() uint64 { return s.total.period() }

// Place returns how many picks of a period come before that of ticket.
func (s *Schedule) Place(ticket uint64) uint64 {
	period := int64(s.Period())
	since := int64(ticket-s.base) % period
	return uint64((int64(s.start) + since + period) % period)
}

// Reweigh returns the Schedule that takes over from s at ticket with new weights for the
// same endpoints, at the place in virtual time that s has reached by then: endpoints whose
// weight has not changed are as far from their next pick as before, give or take a pick. Its
// tickets go on where those of s end, for Next as well: pass s.Ticket() if they come from
// there.
//
// It fails on weights that Config calls invalid and if their number is not that of s, which
// stays as it is. For another set of endpoints make a new Schedule, with a random start.
// O(n log n).
func (s *Schedule) Reweigh(weights []uint32, ticket uint64) (*Schedule, error) {
	c := Config{Weights: weights, Base: ticket, Spread: s.spread}
	if err := c.reweigh(s.total, s.Place(ticket)); err != nil {
		return nil, err
	}
	return c.Schedule()
}

// Fallbacks returns how many picks were not the next in the sequence, because the
// goroutine that was to make them was held up, or because the ticket came too late or
// leapt ahead. They were picks of a nearby part of the sequence instead, so that shares are
// kept. Always zero when a period has at most 8192 picks.
func (s *Schedule) Fallbacks() uint64 {
	if s.stretch == nil {
		return 0
	}
	return s.stretch.fallbacks.Load()
}
