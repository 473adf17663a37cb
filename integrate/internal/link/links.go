// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"google.golang.org/grpc"
)

// excluded contains channels for which a search has found nothing, as weak pointers, and the
// highest number of a link that was looked at. Channels of other packages' resolvers that have
// interceptors would otherwise search for each RPC.
var excluded sync.Map

// search adds the entries of their links to the service configs of all channels of cc's target that
// are not known yet, since any of them may be cc. They stay until end is called. Channels whose
// resolvers are built meanwhile have the entry too. search and end each update these service
// configs once. No lock may be held.
func search(cc *grpc.ClientConn) (end func()) {
	target, last := cc.CanonicalTarget(), int64(0)
	if n, ok := excluded.Load(weak.Make(cc)); ok {
		last = n.(int64)
	}
	registered.Lock()
	registered.searches[target]++
	var hidden []*Link
	for _, l := range registered.byTarget[target] {
		if l.Number() > last && !l.Options.Intercepted && !l.Bypassed && l.cc.Load() == nil {
			hidden = append(hidden, l)
		}
	}
	registered.Unlock()
	for _, l := range hidden {
		l.update()
		last = max(last, l.Number())
	}
	if len(hidden) > 0 && bindNamed(cc) == nil {
		exclude(cc, last)
	}
	return func() { endSearch(target) }
}

// endSearch ends a search for a channel of a target. If it is the only one, the entries of the
// links that were not found are removed.
func endSearch(target string) {
	registered.Lock()
	var announced []*Link
	if registered.searches[target]--; registered.searches[target] == 0 {
		delete(registered.searches, target)
		for _, l := range registered.byTarget[target] {
			if l.announced && !l.Options.Intercepted {
				announced = append(announced, l)
			}
		}
	}
	registered.Unlock()
	for _, l := range announced {
		l.update()
	}
}

// announce reports whether the service config must contain the entry of the link at the moment,
// and records the answer.
func (l *Link) announce() bool {
	registered.Lock()
	defer registered.Unlock()
	l.announced = l.cc.Load() == nil && (l.Options.Intercepted || registered.searches[l.Canonical] > 0)
	return l.announced
}

// exclude records that no link up to a number is the channel's.
func exclude(cc *grpc.ClientConn, last int64) {
	key := weak.Make(cc)
	if _, again := excluded.Swap(key, last); !again {
		runtime.AddCleanup(cc, func(key weak.Pointer[grpc.ClientConn]) { excluded.Delete(key) }, key)
	}
}

// registered contains the links of resolvers that are not closed, by target, and the number of
// searches for channels of a target: see search.
var registered = struct {
	sync.Mutex
	byTarget map[string][]*Link
	searches map[string]int
}{byTarget: map[string][]*Link{}, searches: map[string]int{}}

// All returns all links, in the order in which they were created.
func All() (all []*Link) {
	registered.Lock()
	defer registered.Unlock()
	for _, links := range registered.byTarget {
		all = append(all, links...)
	}
	slices.SortFunc(all, func(a, b *Link) int { return cmp.Compare(a.id, b.id) })
	return all
}

// To returns the links of a target in the form of grpc.ClientConn.CanonicalTarget, in the order in
// which they were registered. Its cost does not depend on other targets.
func To(target string) []*Link {
	registered.Lock()
	defer registered.Unlock()
	return slices.Clone(registered.byTarget[target])
}

// register adds the link.
func (l *Link) register() {
	registered.Lock()
	defer registered.Unlock()
	registered.byTarget[l.Canonical] = append(registered.byTarget[l.Canonical], l)
}

// unregister removes the link, if it is there.
func (l *Link) unregister() {
	registered.Lock()
	defer registered.Unlock()
	links := slices.DeleteFunc(registered.byTarget[l.Canonical], func(other *Link) bool { return other == l })
	if registered.byTarget[l.Canonical] = links; len(links) == 0 {
		delete(registered.byTarget, l.Canonical)
	}
}

// first returns the first link of a target for which ok returns true, or nil.
func first(target string, ok func(*Link) bool) *Link {
	registered.Lock()
	defer registered.Unlock()
	for _, l := range registered.byTarget[target] {
		if ok(l) {
			return l
		}
	}
	return nil
}

// isBypassed is a predicate for first.
func isBypassed(l *Link) bool { return l.Bypassed }

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
