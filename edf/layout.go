// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math"
	"math/bits"
	"slices"
)

// A layout has the classes of a set of weights and the class of each endpoint. It is made from
// all weights, or from another layout, with which it then shares the unchanged parts.
//
// It is immutable except for class.rem, which belongs to the queue made from it. There is at
// most one such queue.
type layout struct {
	links   links
	classes []class // classes of size 0 are reused for other weights
	total   totals
	scale   uint64 // divisor of the weights: a common divisor, in new layouts the greatest
	unit    uint64 // of virtual time in a key; the bits below hold the index
	single  bool   // weights are too large for packed keys, and each endpoint is a class
}

// A Change is a new weight of one endpoint.
type Change struct {
	Index  int
	Weight uint32
}

// An endpoint is an element in the ring of the endpoints of its class.
type endpoint struct {
	next  uint32 // the next endpoint in the class, cyclically
	class uint32 // noClass for weight zero
}

const noClass = math.MaxUint32

// links has the endpoints by index, in chunks that versions share.
type links []*[chunk]endpoint

const chunk = 32

// newLinks returns links of n endpoints without a class.
func newLinks(n int) links {
	chunks := make([][chunk]endpoint, (n+chunk-1)/chunk)
	l := make(links, len(chunks))
	for k := range chunks {
		for i := range chunks[k] {
			chunks[k][i].class = noClass
		}
		l[k] = &chunks[k]
	}
	return l
}

func (l links) at(index uint32) *endpoint { return &l[index/chunk][index%chunk] }

// newLayout returns the layout of weights. O(n).
func newLayout(weights []uint32, t totals) *layout {
	l := &layout{links: newLinks(t.endpoints), total: t, scale: t.gcd, unit: 1}
	order := byWeight(weights, t)
	shift := bits.Len(uint(t.endpoints - 1))
	if l.single = !packs(order, shift); !l.single {
		l.unit = 1 << shift
	}
	l.classify(order)
	return l
}

// weight returns the weight of an endpoint.
func (l *layout) weight(index int) uint32 {
	if l.links == nil { // all are equal
		return uint32(l.total.sum / uint64(l.total.endpoints))
	}
	if c := l.links.at(uint32(index)).class; c != noClass {
		return uint32(uint64(l.classes[c].weight) * l.scale)
	}
	return 0
}

// differences returns the differences from weights, which must have the same number. ok is
// false if there are too many for with. O(n).
func (l *layout) differences(weights []uint32) (changes []Change, ok bool) {
	if l.links == nil || l.single {
		return nil, false
	}
	for i, w := range weights {
		if l.weight(i) != w {
			if changes = append(changes, Change{i, w}); len(changes) > len(weights)/manyChanges+1 {
				return nil, false
			}
		}
	}
	return changes, true
}

// manyChanges is the fraction of changed weights up to which a layout is derived from another.
const manyChanges = 16

// with returns the layout with new weights for some endpoints, or nil if it must be made from
// all weights. It returns an error for weights that Config calls invalid. O(m) for m distinct
// weights, and for each change a copy of up to three chunks and O(√n) on average to find the
// endpoint's position.
func (l *layout) with(changes []Change) (*layout, error) {
	if l.single {
		return nil, nil
	}
	next := *l
	next.links = slices.Clone(l.links)
	next.classes = make([]class, len(l.classes), len(l.classes)+min(len(changes), 4))
	for i := range l.classes {
		// Not rem, which a queue may be writing.
		c := &l.classes[i]
		next.classes[i] = class{step: c.step, frac: c.frac, weight: c.weight, first: c.first, last: c.last, size: c.size}
	}
	for _, ch := range changes {
		was := next.weight(ch.Index)
		if was == ch.Weight {
			continue
		}
		next.total.sum += uint64(ch.Weight) - uint64(was)
		if was > 0 {
			next.remove(l, uint32(ch.Index))
			next.total.active--
		}
		if ch.Weight > 0 {
			if uint64(ch.Weight)%l.scale != 0 {
				return nil, nil
			}
			next.insert(l, uint32(ch.Index), uint32(uint64(ch.Weight)/l.scale))
			next.total.active++
		}
	}
	return next.settled()
}

// settled returns l after its totals have been updated, with the results of with.
func (l *layout) settled() (*layout, error) {
	if err := l.total.check(); err != nil {
		return nil, err
	}
	var gcdOf, most, second uint64
	for i := range l.classes {
		c := &l.classes[i]
		w := uint64(c.weight)
		if c.size == 0 {
			continue
		}
		if gcdOf != 1 {
			gcdOf = gcd(w, gcdOf)
		}
		most, second = max(most, w), max(second, min(most, w))
	}
	l.total.gcd = gcdOf * l.scale
	if most*second > (1<<periodBits)/l.unit {
		return nil, nil
	}
	return l, nil
}

// own returns the endpoint of an index for writing: in a chunk that is not shared with before.
func (l *layout) own(before *layout, index uint32) *endpoint {
	k := index / chunk
	if l.links[k] == before.links[k] {
		c := *l.links[k]
		l.links[k] = &c
	}
	return l.links.at(index)
}

// remove takes an endpoint out of its class.
func (l *layout) remove(before *layout, index uint32) {
	e := l.own(before, index)
	c := &l.classes[e.class]
	if c.size--; c.size > 0 {
		p := l.previous(e.class, index)
		l.own(before, p).next = e.next
		if index == c.first {
			c.first = e.next
		}
		if index == c.last {
			c.last = p
		}
	}
	e.class = noClass
}

// insert adds an endpoint without a class to the class of weight, which the caller has divided by
// scale.
func (l *layout) insert(before *layout, index, weight uint32) {
	k, free := -1, -1
	for i := range l.classes {
		if c := &l.classes[i]; c.size == 0 {
			free = i
		} else if c.weight == weight {
			k = i
			break
		}
	}
	e := l.own(before, index)
	if k < 0 {
		if k = free; k < 0 {
			k = len(l.classes)
			l.classes = append(l.classes, class{})
		}
		l.classes[k] = newClass(weight, l.unit, index)
		*e = endpoint{next: index, class: uint32(k)}
		return
	}
	p := l.previous(uint32(k), index)
	after := l.own(before, p)
	*e = endpoint{next: after.next, class: uint32(k)}
	after.next = index
	c := &l.classes[k]
	c.first, c.last = min(c.first, index), max(c.last, index)
	c.size++
}

// previous returns the endpoint whose turn in class k comes before that of index, which need
// not be in the class: the next lower endpoint, or the last one if none is lower. It searches
// backwards from the index and forwards from the first endpoint at the same time, so the search
// is short both in a large class and in a small one.
func (l *layout) previous(k, index uint32) uint32 {
	c := &l.classes[k]
	if index <= c.first {
		return c.last
	}
	for i, ring := index-1, c.first; ; i-- {
		if l.links.at(i).class == k {
			return i
		}
		// ring is in the class and lower than the index.
		next := l.links.at(ring).next
		if next >= index || next <= ring {
			return ring
		}
		ring = next
	}
}
