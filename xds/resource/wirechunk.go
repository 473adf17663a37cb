// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"hash/maphash"
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// A wireChunk records what a chunk of a locality's list of endpoints was decoded from. Where the next
// version of the resource has the same bytes, its endpoints are those of the chunk: hashing them
// takes less than a twentieth of the time of decoding them.
//
// The bytes are identified by a hash rather than kept, since they are about as large as the
// endpoints. A collision would leave a chunk as it was before. The hash has a secret seed, so that
// the owner of a part of a resource, such as the labels of one backend, cannot search for a
// collision. xxh3 is ten times as fast, but its seed is not meant as a key. A control plane would
// gain nothing from a collision: it may as well send the previous endpoints.
//
// The first bytes are the tag of the first endpoint, so it makes no difference which field of the
// locality contains them.
//
// An Endpoints owns the wireChunks of its version, parallel to the chunks of its lists, and is
// immutable. They take 80 bytes for each chunk, which has 85 endpoints as long as a list does not
// change, plus 8 bytes for each different metadata in the chunk and 48 for each unhealthy endpoint.
// Endpoints of lists that are shorter than minWireChunk are always decoded.
type wireChunk struct {
	sum  uint64 // of the bytes
	size int    // number of bytes, from the chunk's first endpoint to that of the next chunk

	n         int                // endpoints
	weight    uint64             // the sum of their weights
	metadata  []*metadata        // of them, each once
	unhealthy []picker.Unhealthy // endpoints among them that are excluded
}

// minWireChunk is the length of the shortest list with wireChunks.
const minWireChunk = 16

var wireSeed = maphash.MakeSeed()

// wireRevision makes the wireChunks of a new version of a list.
type wireRevision struct {
	before []wireChunk // of the previous version
	k      int         // the first chunk of before with later endpoints than those found so far
	start  int         // index of its first endpoint in the previous list
	hit    *wireChunk  // the chunk of before that starts with the last endpoint found, if any

	off  bool        // the list is too short
	same int         // number of chunks while they are the first ones of before
	list []wireChunk // nil until then

	current   wireChunk // is under construction from the bytes at, unless that is nil
	at        []byte
	unhealthy int // number of unhealthy endpoints before it

	// The sum of the first size of a number of bytes was computed before.
	tried struct {
		bytes, size int
		sum         uint64
	}
}

// found records that an endpoint of the previous list is in the new one as well.
func (w *wireRevision) found(i int) {
	w.hit = nil
	for w.k < len(w.before) && w.start <= i {
		if w.start == i {
			w.hit = &w.before[w.k]
		}
		w.start += w.before[w.k].n
		w.k++
	}
}

// sum returns the hash of the first size bytes.
func (w *wireRevision) sum(bytes []byte, size int) uint64 {
	if t := &w.tried; t.bytes != len(bytes) || t.size != size {
		t.bytes, t.size, t.sum = len(bytes), size, maphash.Bytes(wireSeed, bytes[:size])
	}
	return w.tried.sum
}

func (w *wireRevision) append(c *wireChunk) {
	if w.list == nil && w.same < len(w.before) && c == &w.before[w.same] {
		w.same++
		return
	}
	if w.list == nil {
		w.list = append(make([]wireChunk, 0, len(w.before)+2), w.before[:w.same]...)
	}
	w.list = append(w.list, *c)
}

// chunks returns all chunks.
func (w *wireRevision) chunks() []wireChunk {
	if w.list == nil {
		return w.before[:w.same]
	}
	return w.list
}

// skip appends a chunk of the previous list without decoding it, if the message continues with
// its bytes. Endpoint i of the previous list, which was decoded from the first of them, must be the
// last one found. skip returns the rest of the message, or nil if the chunk is another one.
//
// Each chunk is compared once, so the total time is linear.
func (d *endpointsDecoder) skip(rev *revision, i int, message []byte) (rest []byte) {
	w := &rev.wire
	c := w.hit
	if i < 0 || c == nil || len(message) < c.size || w.sum(message, c.size) != c.sum || !rev.list.Share(i, i+c.n) {
		return nil
	}
	d.endWireChunk(w, message)
	w.append(c)
	rev.n += c.n
	rev.sum += c.weight
	rev.next = i + c.n
	d.inherited = true
	d.unhealthy = append(d.unhealthy, c.unhealthy...)
	for _, m := range c.metadata {
		d.keepMetadata(m)
	}
	return message[c.size:]
}

// addToWireChunk counts an endpoint that was decoded from the start of message. first means that it
// starts a chunk.
func (d *endpointsDecoder) addToWireChunk(w *wireRevision, e *picker.Endpoint, first bool, message []byte) {
	if w.off {
		return
	}
	if first {
		d.endWireChunk(w, message)
		w.current, w.at, w.unhealthy = wireChunk{}, message, len(d.unhealthy)
	}
	c := &w.current
	c.n++
	c.weight += uint64(e.Weight)
	if m := d.meta; m != nil && !slices.Contains(c.metadata, m) {
		c.metadata = append(c.metadata, m)
	}
}

// endWireChunk completes the chunk under construction, if any. The remaining message belongs to the
// next one.
func (d *endpointsDecoder) endWireChunk(w *wireRevision, message []byte) {
	if w.at == nil {
		return
	}
	w.current.size = len(w.at) - len(message)
	w.current.sum = w.sum(w.at, w.current.size)
	w.current.unhealthy = append([]picker.Unhealthy(nil), d.unhealthy[w.unhealthy:]...)
	w.append(&w.current)
	w.at = nil
}
