// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"math"
	"strings"
)

// Update returns the ring of hosts with the sizes and the hash function of r:
// the same ring as [New] would build, for less. It returns r itself if the same
// entries belong to the same host indexes. r stays valid.
//
// The points of a host depend on its key alone, and which of them are in the
// ring on their number alone, so the entries that come and go are known without
// a look at the ring. Only those are hashed and sorted; the rest is one linear
// copy (BenchmarkUpdate). An update that changes most of the ring is a build.
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
		next.finish(members, merged, bucketStarts(merged.hashes))
	case c.renumbered:
		next.members = members
		next.index = r.index
		next.hosts = c.renumber(make([]uint32, 0, len(r.hosts)), r.hosts)
	default:
		return r, nil
	}
	return next, nil
}

// changes is what distinguishes two generations of a ring.
type changes struct {
	dropped    spans    // entries to leave out; hosts by old index
	added      spans    // entries to insert; hosts by new index
	moved      []uint32 // new index of a host that stays, by old index
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

// entries returns the points of s in the order of the ring.
func (s *spans) entries(fn Func) entries {
	all := makeEntries(s.size)
	rest := all
	for _, p := range s.list {
		rest = rest.put(fn, p.key, p.host, p.from, p.to)
	}
	sorted, _ := all.sort()
	return sorted
}

// compare pairs the members of two generations, the later of which was ranked
// from a list of n hosts. Hosts that share a key pair up in order of rank, so
// that no pairs cross: hosts that stay keep their rank relative to each other.
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

// compareFirst compares the keys of the first members of two lists, of which one
// may be empty and then comes last.
func compareFirst(a, b []member) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return strings.Compare(a[0].key, b[0].key)
}

// merge returns the size entries of the new ring. O(size), of which most is
// copying: only the places of changes are looked at.
func (c *changes) merge(old *Ring, size int) entries {
	dropped, added := c.dropped.entries(old.fn), c.added.entries(old.fn)
	merged := makeEntries(size)
	merged.hashes, merged.hosts = merged.hashes[:0], merged.hosts[:0]
	i, d, a := 0, 0, 0 // next entry of old, dropped and added
	for d < len(dropped.hashes) || a < len(added.hashes) {
		hash := uint64(math.MaxUint64)
		if d < len(dropped.hashes) {
			hash = dropped.hashes[d]
		}
		if a < len(added.hashes) {
			hash = min(hash, added.hashes[a])
		}
		run := i
		i = old.seek(hash)
		merged.hashes = append(merged.hashes, old.hashes[run:i]...)
		merged.hosts = c.renumber(merged.hosts, old.hosts[run:i])

		// Entries of equal hash go by rank. All three lists are in that order.
		for same := true; same; {
			drop := d < len(dropped.hashes) && dropped.hashes[d] == hash
			add := a < len(added.hashes) && added.hashes[a] == hash
			stay := i < old.Len() && old.hashes[i] == hash
			switch {
			case drop && stay && old.hosts[i] == dropped.hosts[d]:
				i++
				d++
			case add && (!stay || c.order[added.hosts[a]] < c.order[c.moved[old.hosts[i]]]):
				merged.hashes = append(merged.hashes, hash)
				merged.hosts = append(merged.hosts, added.hosts[a])
				a++
			case stay:
				merged.hashes = append(merged.hashes, hash)
				merged.hosts = append(merged.hosts, c.moved[old.hosts[i]])
				i++
			default:
				same = false
			}
		}
	}
	merged.hashes = append(merged.hashes, old.hashes[i:old.Len()]...)
	merged.hosts = c.renumber(merged.hosts, old.hosts[i:old.Len()])
	return merged
}

// renumber appends the new indexes of hosts that stay to dst, which has room.
func (c *changes) renumber(dst, hosts []uint32) []uint32 {
	if !c.renumbered {
		return append(dst, hosts...)
	}
	n := len(dst)
	dst = dst[:n+len(hosts)]
	for i, host := range hosts {
		dst[n+i] = c.moved[host]
	}
	return dst
}

// bucketStarts returns the start of each bucket of sorted hashes. O(n). It has no
// branches that depend on the hashes: the last entry of a bucket leaves the start
// of the next, and empty buckets inherit theirs.
func bucketStarts(hashes []uint64) []uint32 {
	shift := bucketShift(len(hashes)) & 63
	start := make([]uint32, 1<<(64-shift)+1)
	for i, hash := range hashes {
		start[hash>>shift+1] = uint32(i + 1)
	}
	most := uint32(0)
	for b, p := range start {
		most = max(most, p)
		start[b] = most
	}
	return start
}
