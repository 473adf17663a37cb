// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

// A wideKey is an unpacked key: when the product of the two largest weights exceeds the
// resolution of a key with room for an index, the deadline gets all 62 bits. That is enough for
// any weights whose sum is below 2^32, for then no product exceeds 2^62.
type wideKey struct {
	due   uint64
	index uint32
}

// less orders wide keys by deadline, ties by index.
func (c wideKey) less(d wideKey) bool {
	return c.due < d.due || c.due == d.due && c.index < d.index
}

// nextWide is next for a queue with wide keys. O(log n); does not allocate.
func (h *queue) nextWide() int {
	c := h.wide[0]
	if c.due >= rebaseAt {
		h.rebaseWide()
		c.due -= rebaseAt
	}
	class := h.links.at(c.index).class
	c.due += h.classes[class].advance(0, h.unit)
	h.replayWide(c, (len(h.wide)+int(class))/2)
	return int(c.index)
}

// replayWide is replay for wide keys.
func (h *queue) replayWide(c wideKey, n int) {
	for ; n > 0; n /= 2 {
		if loser := h.wide[n]; loser.less(c) {
			h.wide[n], c = c, loser
		}
	}
	h.wide[0] = c
}

// rebaseWide is rebase for wide keys.
//
//go:noinline
func (h *queue) rebaseWide() {
	for n := range h.wide {
		if c := &h.wide[n]; c.due < absent {
			c.due -= rebaseAt
		}
	}
}
