// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math/bits"
	"sync"
)

const (
	// periodBits is the number of bits of a period: one period of virtual time spans
	// 2^periodBits keys.
	periodBits = 62

	// rebaseAt is two periods, at which keys are moved back. Live keys lie within one period of
	// each other, so none of them reaches three periods, which is absent, the key of a leaf
	// without a class.
	rebaseAt = 2 << periodBits
	absent   = 3 << periodBits
)

// A queue is an exact EDF sequence, produced pick by pick.
//
// layout.queue makes it. It must not be copied. It is not safe for
// concurrent use; see Schedule for a concurrent sequence.
//
// next is O(log m) for m distinct weights, regardless of their ratio. A queue holds 8 bytes for
// each endpoint and 40 to 48 for each distinct weight.
type queue struct {
	_ [0]sync.Mutex

	// tree[0] is the winner's key; node n of tree[1:] is the loser of the match between the
	// winners of nodes 2n and 2n+1. There is a leaf for each class. The number of leaves is a
	// power of two, so that all paths to the root have the same length.
	tree []uint64
	wide []wideKey // used instead of tree if weights are too large for packed keys

	layout
	position uint64 // picks since the start of the sequence, modulo whole periods
}

// queue returns the queue of l, which still needs a seek.
func (l *layout) queue() *queue {
	h := &queue{layout: *l}
	leaves := 1 << bits.Len(uint(len(l.classes)-1))
	if l.single {
		h.wide = make([]wideKey, leaves)
	} else {
		h.tree = make([]uint64, leaves)
	}
	return h
}

// next returns the next pick. O(log m) for m distinct weights, and O(m) once in two
// periods; does not allocate.
func (h *queue) next() int {
	h.position++
	if h.wide != nil {
		return h.nextWide()
	}
	key := h.tree[0]
	if key >= rebaseAt {
		h.rebase()
		key -= rebaseAt
	}
	index := key & (h.unit - 1)
	e := h.links.at(uint32(index))
	key += h.classes[e.class].advance(int64(e.next)-int64(index), h.unit)
	h.replay(key, (len(h.tree)+int(e.class))/2)
	return int(index)
}

// replay replays the matches on the path from node n to the root, with key as the new leaf key.
// min and max compile to conditional moves, since the winner is hard to predict.
func (h *queue) replay(key uint64, n int) {
	tree := h.tree
	for ; n > 0; n /= 2 {
		loser := tree[n]
		tree[n] = max(key, loser)
		key = min(key, loser)
	}
	tree[0] = key
}

// rebase moves all keys back by two periods.
//
//go:noinline
func (h *queue) rebase() {
	for n, key := range h.tree {
		if key < absent {
			h.tree[n] = key - rebaseAt
		}
	}
}

// seek moves to position n of the sequence, counted from its start: next then returns the
// result of the (n+1)th call from the start. O(m) for m distinct weights, followed by less than
// one pick for each endpoint; does not allocate.
//
// It works because no endpoint falls behind the whole part of its quota: after n picks endpoint
// i has had at least floor(n*weight/sum). (Otherwise it lacks a pick whose deadline is at most
// n/sum, and all n picks came before that pick. But the picks with a deadline of at most n/sum,
// including the lacking one, are the sum of these floors: no more than n.) seek grants these
// quotas at once. It makes the remaining picks, fewer than there are endpoints, one by one, or
// by deadline if there are few weights.
func (h *queue) seek(n uint64) {
	n %= h.total.period()
	h.position = 0
	turn := h.total.sum / h.scale
	// Zero is less than every key. A key moves up to the first node that no other key has
	// reached and stays there until its match, while the zero moves on.
	clear(h.tree)
	clear(h.wide)
	if h.tree != nil && len(h.classes) <= few {
		h.seekFew(n, turn)
	} else {
		for i := range h.classes {
			c := &h.classes[i]
			if c.size == 0 {
				h.enter(absent/h.unit, 0, i)
				continue
			}
			had := n * uint64(c.weight) / turn
			h.position += had * uint64(c.size)
			h.enter(c.start(had+1, h.unit), c.first, i)
		}
	}
	for i := len(h.classes); i < len(h.tree)+len(h.wide); i++ {
		h.enter(absent/h.unit, 0, i)
	}
	for h.position < n {
		h.next()
	}
}

// few is the maximum number of classes that are worth scanning for each deadline.
const few = 256

// seekFew enters all classes at position n or slightly before. Beyond the quotas it grants all
// picks of a deadline together while there are many, and the last ones in order of index.
func (h *queue) seekFew(n, turn uint64) {
	var keys [few]uint64
	for i := range h.classes {
		c := &h.classes[i]
		if keys[i] = absent; c.size > 0 {
			had := n * uint64(c.weight) / turn
			h.position += had * uint64(c.size)
			keys[i] = c.start(had+1, h.unit)*h.unit + uint64(c.first)
		}
	}
	work, granted := 0, 0 // a pick costs about as much as scanning four classes
	for h.position < n && work <= 4*granted+1024 {
		due, size := uint64(absent), 0
		for i := range h.classes {
			switch d := keys[i] &^ (h.unit - 1); {
			case d < due:
				due, size = d, int(h.classes[i].size)
			case d == due:
				size += int(h.classes[i].size)
			}
		}
		work += len(h.classes)
		if left := n - h.position; uint64(size) > left {
			if 8*size >= h.total.endpoints {
				h.grant(&keys, due, left)
			}
			break
		}
		for i := range h.classes {
			if keys[i]&^(h.unit-1) == due {
				keys[i] += h.classes[i].advance(0, h.unit)
			}
		}
		h.position += uint64(size)
		granted += size
	}
	for i := range h.classes {
		h.replay(keys[i], (len(h.tree)+i)/2)
	}
}

// grant makes the next picks, which all have one deadline, and are not all picks of that
// deadline.
func (h *queue) grant(keys *[few]uint64, due, picks uint64) {
	h.position += picks
	for index := uint64(0); picks > 0; index++ {
		e := h.links.at(uint32(index))
		if e.class < few && keys[e.class] == due+index {
			keys[e.class] += h.classes[e.class].advance(int64(e.next)-int64(index), h.unit)
			picks--
		}
	}
}

// enter adds a key to the tournament at the leaf of a class.
func (h *queue) enter(due uint64, index uint32, class int) {
	if h.wide != nil {
		h.replayWide(wideKey{due, index}, (len(h.wide)+class)/2)
	} else {
		h.replay(due*h.unit+uint64(index), (len(h.tree)+class)/2)
	}
}
