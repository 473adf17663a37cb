// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math"
	"math/bits"
	"slices"
)

// A layout is what weights come to: their classes, and which endpoint is in which. It is made
// of all weights, or of another layout, with which it then shares what did not change.
//
// It is immutable but for class.rem, which belongs to the Heap that is made of it. There is
// one at most.
type layout struct {
	links   links
	classes []class // those of size 0 wait for another weight
	total   totals
	scale   uint64 // what weights are divided by: a common divisor, in new layouts the greatest
	unit    uint64 // of virtual time in a key; the bits below hold the index
	single  bool   // weights are too large for packed keys, and each endpoint is a class
}

// A Change is another weight of one endpoint.
type Change struct {
	Index  int
	Weight uint32
}

// An endpoint is a place in the ring of the endpoints of its class.
type endpoint struct {
	next  uint32 // whose turn is next in the class: after the last endpoint the first
	class uint32 // noClass for weight zero
}

const noClass = math.MaxUint32

// links has the endpoints by index, in chunks, which versions share.
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

// differences returns what is other in weights, of the same number, or ok = false if that is
// too much for with. O(n).
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

// manyChanges is the part of the weights that change up to which a layout is made of another.
const manyChanges = 16

// with returns the layout with other weights for some endpoints, or nil if that has to be made
// of all weights. It returns an error for weights that Config calls invalid. O(m) for m
// distinct weights, and for each change a copy of up to three chunks and O(√n) on average to
// find the endpoint's place.
func (l *layout) with(changes []Change) (*layout, error) {
	if l.single {
		return nil, nil
	}
	next := *l
	next.links = slices.Clone(l.links)
	next.classes = make([]class, len(l.classes), len(l.classes)+min(len(changes), 4))
	for i := range l.classes {
		// Not rem, which a Heap may be writing.
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

// settled returns l once its totals are right, with the results of with.
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

// own returns the endpoint of an index to be written: in a chunk that is not that of before.
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

// insert puts an endpoint without a class into that of a weight, divided by scale.
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

// previous returns whose turn in a class comes before that of an index, which may be in the
// class or not: the next lower endpoint, or the last one if there is none. It looks for it
// backwards from the index and forwards from the first one at the same time, so it finds it
// soon both in a class of many and in one of few.
func (l *layout) previous(k, index uint32) uint32 {
	c := &l.classes[k]
	if index <= c.first {
		return c.last
	}
	for i, ring := index-1, c.first; ; i-- {
		if l.links.at(i).class == k {
			return i
		}
		// ring is of the class and lower than the index.
		next := l.links.at(ring).next
		if next >= index || next <= ring {
			return ring
		}
		ring = next
	}
}
