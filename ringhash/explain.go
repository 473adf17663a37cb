// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

// This file is for callers that explain picks. Picks do not use it.

// Place returns the position of the entry to which a hash belongs: 0 to [Ring.Len] − 1.
func (r *Ring) Place(hash uint64) int { return r.wrap(r.seek(hash)) }

// Slot returns the slot of the table to which a hash belongs: 0 to [Maglev.Len] − 1.
func (m *Maglev) Slot(hash uint64) int { return int(m.slot(hash)) }

// Len returns the number of slots in the table.
func (m *Maglev) Len() int { return int(m.size) }

// Arcs returns for each of n hosts the probability that a random hash belongs to it: the
// fraction of the circle between its entries and the entries before them. All are 0 if no host
// is usable. O(Len).
func (v *View) Arcs(n int) []float64 {
	arcs := make([]float64, n)
	if !v.ok {
		return arcs
	}
	const circle = 1 << 64
	last := len(v.entries) - 1 // the sentinel, which closes the circle
	before := -1.              // the hash before the first
	for i := range v.entries {
		e := &v.entries[i]
		hash := float64(e.hash())
		if i == last {
			hash = circle - 1
		}
		arcs[e.host] += (hash - before) / circle
		before = hash
	}
	return arcs
}

// Shares returns the fraction of the slots of each of n hosts. O(Len).
func (m *Maglev) Shares(n int) []float64 {
	shares := make([]float64, n)
	for slot := range m.size {
		host := 0
		if m.narrow != nil {
			host = int(m.narrow[slot])
		} else {
			host = int(m.wide[slot])
		}
		shares[host] += 1 / float64(m.size)
	}
	return shares
}
