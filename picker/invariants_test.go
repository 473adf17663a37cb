// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package picker

import "testing"

// TestBreakerSteps makes an RPC begin or end while, between any two atomic operations of that, other RPCs begin and end,
// in all ways with up to three of these, from all distributions of a few slots. An RPC may be rejected only if the
// limit was reached at some moment of its call, and no moment may exceed the limit.
func TestBreakerSteps(t *testing.T) {
	const limit = 8 // the smallest with stripes of 2 P, which keep one slot each
	runs, rejected, stolen := 0, 0, 0
	for _, inFlight := range []int{limit - 2, limit - 1, limit} {
		for _, kept := range [][2]int{{0, 0}, {1, 0}, {0, 1}, {1, 1}} {
			for _, end := range []bool{false, true} {
				if inFlight+kept[0]+kept[1] > limit {
					continue
				}
				choices := &chooser{}
				for ok := true; ok; ok = choices.next() {
					r := stepRun{t: t, b: openStripes(t, limit, inFlight, kept[0], kept[1]), inFlight: inFlight, choices: choices}
					free := r.b.stripes.Load().free()
					r.run(end)
					runs++
					if r.rejected {
						rejected++
					} else if !end && r.b.stripes.Load().free() < free {
						stolen++
					}
				}
			}
		}
	}
	t.Logf("%d runs, %d rejected, %d took slots of stripes", runs, rejected, stolen)
	if runs < 1000 || rejected == 0 || stolen == 0 {
		t.Errorf("%d runs, of which %d were rejected and %d took slots of stripes, are too few", runs, rejected, stolen)
	}
}

// A stepRun is an RPC that begins or ends, with others meanwhile.
type stepRun struct {
	t        *testing.T
	b        *Breaker
	inFlight int
	below    bool // at some moment of the call, fewer RPCs than the limit were in flight
	full     bool // at some moment of the call, the limit was reached
	others   int
	choices  *chooser
	rejected bool
}

func (r *stepRun) observe() {
	const limit = 8
	r.below = r.below || r.inFlight < limit
	r.full = r.full || r.inFlight >= limit
	if r.inFlight > limit {
		r.t.Fatalf("%v: %d in flight with a limit of %d", r.choices.made, r.inFlight, limit)
	}
}

// run begins the RPC, or ends one of the RPCs in flight, on P 0.
func (r *stepRun) run(end bool) {
	const limit = 8
	r.observe()
	r.b.testHook = r.other
	if end {
		r.inFlight-- // from its beginning, no other RPC may assume the slot
		r.b.releaseAt(0)
		r.b.testHook = nil
	} else {
		admitted := r.b.acquireAt(0, limit)
		r.b.testHook = nil
		if r.rejected = !admitted; admitted {
			r.inFlight++
			if !r.below {
				r.t.Fatalf("%v: admitted while the limit was reached all the time", r.choices.made)
			}
		} else if !r.full {
			r.t.Fatalf("%v: rejected while the limit was not reached at any time", r.choices.made)
		}
	}
	r.observe()
	if n := r.b.InFlight(); n != int64(r.inFlight) {
		r.t.Fatalf("%v: InFlight() = %d, want %d", r.choices.made, n, r.inFlight)
	}
}

// other makes another RPC begin or end, or the stripes open or close, or does nothing.
func (r *stepRun) other() {
	const limit = 8
	if r.others == 3 {
		return
	}
	r.b.testHook = nil
	defer func() { r.b.testHook = r.other }()
	k := r.choices.choose(6)
	if k > 0 {
		r.others++
	}
	switch k {
	case 1, 2: // an RPC begins on P 0 or 1
		if r.b.acquireAt(k-1, limit) {
			r.inFlight++
		} else if r.inFlight+1 < limit { // the first RPC may have its slot already, or still
			r.t.Fatalf("%v: another RPC is rejected with %d in flight", r.choices.made, r.inFlight)
		}
	case 3, 4: // an RPC ends on P 0 or 1
		if r.inFlight > 0 {
			r.inFlight--
			r.b.releaseAt(k - 3)
		}
	case 5:
		r.b.settle()
		r.b.open(limit, 2)
	}
	r.observe()
}

// A chooser goes through all sequences of choices, depth first.
type chooser struct {
	made, of []int
	at       int
}

// choose returns a number below n.
func (c *chooser) choose(n int) int {
	if c.at == len(c.made) {
		c.made, c.of = append(c.made, 0), append(c.of, n)
	}
	c.at++
	return c.made[c.at-1]
}

// next advances to the next sequence, and reports whether there is one.
func (c *chooser) next() bool {
	c.made, c.of, c.at = c.made[:c.at], c.of[:c.at], 0
	for k := len(c.made) - 1; k >= 0; k-- {
		if c.made[k]++; c.made[k] < c.of[k] {
			c.made, c.of = c.made[:k+1], c.of[:k+1]
			return true
		}
	}
	return false
}

// TestSharedLoad checks that localities of a priority do not share a Load, since a Load is the
// position in the sequence of one locality (EDF-2).
func TestSharedLoad(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)), zone("b", 1, endpoints(1, 1)))
	first, second := &w.states[0].Localities[0], &w.states[0].Localities[1]
	second.Load = first.Load
	second.Endpoints.State(0).binding = first.Endpoints.State(0).binding
	defer func() {
		if recover() == nil {
			t.Error("Build accepts localities that share a Load")
		}
	}()
	w.build(t)
}
