// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
)

// channels leads from the channels that are known to their links.
var channels = newTable()

// A table leads from channels to links. Interceptors read it for each RPC, without a lock, and at
// the same cost for any number of channels: it is a hash table with open addressing and linear
// probing, of which at most half is in use.
type table struct {
	slots atomic.Pointer[[]slot]
	mu    sync.Mutex // serializes changes
	used  int        // slots that are not nil
	bound int        // of these, with a link
}

// A slot is nil at first. When a channel is removed, its slot becomes unused rather than nil, since
// readers look for other channels beyond it.
type slot struct{ atomic.Pointer[entry] }

type entry struct {
	cc   *grpc.ClientConn
	link *Link
}

var unused = new(entry)

func newTable() *table {
	t := new(table)
	slots := make([]slot, 16)
	t.slots.Store(&slots)
	return t
}

// find returns the link of a channel, or nil.
func (t *table) find(cc *grpc.ClientConn) *Link {
	if e := find(*t.slots.Load(), cc).Load(); e != nil {
		return e.link
	}
	return nil
}

// find returns the slot of a channel, or the slot of slots where it would be added.
func find(slots []slot, cc *grpc.ClientConn) *slot {
	for i := hash(cc); ; i++ {
		s := &slots[i&uint64(len(slots)-1)]
		if e := s.Load(); e == nil || e.cc == cc {
			return s
		}
	}
}

// set sets the link of a channel.
func (t *table) set(cc *grpc.ClientConn, l *Link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := find(*t.slots.Load(), cc)
	if s.Load() == nil {
		if t.used++; 2*t.used > len(*t.slots.Load()) {
			t.copy()
			s = find(*t.slots.Load(), cc)
			t.used++
		}
		t.bound++
	}
	s.Store(&entry{cc, l})
}

// remove removes the link of a channel, if it still is l.
func (t *table) remove(cc *grpc.ClientConn, l *Link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := find(*t.slots.Load(), cc); s.Load() != nil && s.Load().link == l {
		s.Store(unused)
		t.bound--
	}
}

// copy replaces the slots by new ones, without unused entries, of which at most a quarter is in use.
func (t *table) copy() {
	n := 16
	for n < 4*(t.bound+1) {
		n *= 2
	}
	slots := make([]slot, n)
	t.used = 0
	for i := range *t.slots.Load() {
		if e := (*t.slots.Load())[i].Load(); e != nil && e != unused {
			find(slots, e.cc).Store(e)
			t.used++
		}
	}
	t.slots.Store(&slots)
}
