// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

// A contender is a packed key taken apart: when the two largest weights multiply to more
// than a key with room for an index can tell apart, the deadline gets all 62 bits. That
// is enough for any weights whose sum is below 2^32, for then no product passes 2^62.
type contender struct {
	due   uint64
	index uint32
}

// beats orders contenders by deadline, ties by index.
func (c contender) beats(d contender) bool {
	return c.due < d.due || c.due == d.due && c.index < d.index
}

// nextWide is Next for a Heap with wide keys. O(log n); does not allocate.
func (h *Heap) nextWide() int {
	c := h.wide[0]
	if c.due >= rebaseAt {
		h.rebaseWide()
		c.due -= rebaseAt
	}
	class := h.links.at(c.index).class
	c.due += h.classes[class].advance(0, h.unit)
	h.playWide(c, (len(h.wide)+int(class))/2)
	return int(c.index)
}

// playWide is play for wide keys.
func (h *Heap) playWide(c contender, n int) {
	for ; n > 0; n /= 2 {
		if rival := h.wide[n]; rival.beats(c) {
			h.wide[n], c = c, rival
		}
	}
	h.wide[0] = c
}

// rebaseWide is rebase for wide keys.
//
//go:noinline
func (h *Heap) rebaseWide() {
	for n := range h.wide {
		if c := &h.wide[n]; c.due < absent {
			c.due -= rebaseAt
		}
	}
}
