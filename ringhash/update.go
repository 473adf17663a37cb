// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"math"
	"strings"
)

// Update returns the ring of hosts with the sizes and the hash function of r: the same ring
// that [New] would build, at a lower cost. It returns r itself if the same entries belong to
// the same host indexes. r stays valid.
//
// The points of a host depend only on its key, and the subset of them in the ring only on their
// number, so the added and removed entries are known without searching the ring. Only those are
// hashed and sorted; the rest is one linear copy (BenchmarkUpdate). An update that changes most
// of the ring is a build.
func (r *Ring) Update(hosts []Host) (*Ring, error) {
	members, size, err := r.place(hosts)
	if err != nil {
		return nil, err
	}
	next := &Ring{minSize: r.minSize, maxSize: r.maxSize, fn: r.fn}
	c := compare(r.members, members, len(hosts))
	switch changed := c.dropped.size + c.added.size; {
	case changed > size/2:
		next.build(members, size)
	case changed > 0:
		merged := c.merge(r, size)
		next.members = members
		next.index = newIndex(merged, bucketStarts(merged))
	case c.renumbered:
		next.members = members
		next.index = newIndex(c.keep(makeEntries(size)[:0], r.entries[:size]), r.start)
	default:
		return r, nil
	}
	return next, nil
}

// changes are the differences between two generations of a ring.
type changes struct {
	dropped    spans    // entries to leave out; hosts by old index
	added      spans    // entries to insert; hosts by new index
	moved      []uint32 // new index of a remaining host, by old index
	order      []uint32 // rank of a host, by new index
	renumbered bool     // moved is not the identity
}

// spans are runs of points, in order of the rank of their hosts.
type spans struct {
	list []span
	size int // sum of to-from
}

// span is the points from to to-1 of a host.
type span struct {
	key            string
	host, from, to uint32
}

func (s *spans) add(m member, from, to uint32) {
	if from < to {
		s.list = append(s.list, span{m.key, m.host, from, to})
		s.size += int(to - from)
	}
}

// sorted returns the points of s in the order of the ring.
func (s *spans) sorted(fn Func) []entry {
	entries := makeEntries(s.size)
	rest := entries
	for _, p := range s.list {
		n := p.to - p.from
		fn.points(rest[:n], p.key, p.host, p.from)
		rest = rest[n:]
	}
	sorted, _ := sortEntries(entries)
	return sorted
}

// compare pairs the members of two generations. The later one was ranked from a list of n
// hosts. Hosts that share a key are paired in order of rank, so that remaining hosts keep their
// rank relative to each other.
func compare(before, after []member, n int) *changes {
	last := uint32(0)
	for i := range before {
		last = max(last, before[i].host)
	}
	c := &changes{moved: make([]uint32, last+1), order: make([]uint32, n)}
	for i := range after {
		c.order[after[i].host] = uint32(i)
	}
	for len(before) > 0 || len(after) > 0 {
		switch side := compareFirst(before, after); {
		case side < 0:
			gone := before[0]
			c.dropped.add(gone, 0, gone.count)
			before = before[1:]
		case side > 0:
			come := after[0]
			c.added.add(come, 0, come.count)
			after = after[1:]
		default:
			was, is := before[0], after[0]
			c.moved[was.host] = is.host
			c.renumbered = c.renumbered || was.host != is.host
			c.dropped.add(was, is.count, was.count)
			c.added.add(is, was.count, is.count)
			before, after = before[1:], after[1:]
		}
	}
	return c
}

// compareFirst compares the keys of the first members of two lists. An empty list compares
// greater.
func compareFirst(a, b []member) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return strings.Compare(a[0].key, b[0].key)
}

// merge returns the size entries of the new ring. O(size), most of which is copying, since it
// only examines the positions of changes.
func (c *changes) merge(old *Ring, size int) []entry {
	dropped, added := c.dropped.sorted(old.fn), c.added.sorted(old.fn)
	entries := old.entries[:old.Len()]
	merged := makeEntries(size)[:0]
	for len(dropped) > 0 || len(added) > 0 {
		hash := uint64(math.MaxUint64)
		if len(dropped) > 0 {
			hash = dropped[0].hash()
		}
		if len(added) > 0 {
			hash = min(hash, added[0].hash())
		}
		run := old.seek(hash) - (old.Len() - len(entries))
		merged = c.keep(merged, entries[:run])
		entries = entries[run:]

		// Entries of equal hash are ordered by rank, and all three lists are in that order.
		for same := true; same; {
			drop := len(dropped) > 0 && dropped[0].hash() == hash
			add := len(added) > 0 && added[0].hash() == hash
			stay := len(entries) > 0 && entries[0].hash() == hash
			switch {
			case drop && stay && entries[0] == dropped[0]:
				entries, dropped = entries[1:], dropped[1:]
			case add && (!stay || c.order[added[0].host] < c.order[c.moved[entries[0].host]]):
				merged = append(merged, added[0])
				added = added[1:]
			case stay:
				merged = c.keep(merged, entries[:1])
				entries = entries[1:]
			default:
				same = false
			}
		}
	}
	return c.keep(merged, entries)
}

// keep appends entries of remaining hosts to dst, under their new indexes.
func (c *changes) keep(dst, entries []entry) []entry {
	n := len(dst)
	dst = append(dst, entries...)
	if c.renumbered {
		for i := n; i < len(dst); i++ {
			dst[i].host = c.moved[dst[i].host]
		}
	}
	return dst
}
