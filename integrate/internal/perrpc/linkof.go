// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// This file is how one finds the link of a channel that no interceptor has asked for. A
// search has the service configs of all channels name their links, as far as these have not
// been found, since nobody knows which of them is the channel's. What it has found is in
// linksSeen. The others go on being named for a while: whoever looks at one channel usually
// looks at all, and n channels take 2n changes of service configs then, not n².
//
//	         LinkOf                    LinkOf of its channel
//	unsought ──────► sought, and named ──────────────────────► seen
//	   ▲                    │
//	   └────────────────────┘
//	   searchTime in which none was found

var (
	// linksSeen is as linksOf, of channels that LinkOf found, which says nothing of
	// interceptors.
	linksSeen sync.Map
	// unsought has the links that no search has named yet, or not any more: *Link to struct{}.
	unsought sync.Map
	// searching is held while links are being named, and while that is ended.
	searching sync.Mutex
)

// searchTime is for how long links are named after a search, and after one that it named was
// found.
const searchTime = time.Second

// LinkOf returns the channel's link, or nil if its resolver is not ours or the channel
// is idle and has none. It does not connect the channel. If neither an interceptor nor
// LinkOf has asked for the link yet, the service configs of all channels of which that is so
// name their links for a while, unless the channel's target or state says that it has none.
func LinkOf(cc *grpc.ClientConn) *Link {
	if l := known(cc); l != nil || !mayBeOurs(cc) || cc.GetState() == connectivity.Shutdown {
		return l
	}
	searching.Lock()
	defer searching.Unlock()
	var named []*Link
	for l := range unsought.Range {
		l := l.(*Link)
		unsought.Delete(l)
		if !l.found() {
			l.sought.Store(true)
			l.Update()
			named = append(named, l)
		}
	}
	endSearchLater(named)
	return known(cc)
}

// endSearchLater has the search that named some links end after a while.
func endSearchLater(named []*Link) {
	if len(named) > 0 {
		time.AfterFunc(searchTime, func() { endSearch(named) })
	}
}

// endSearch ends the search that named some links, unless it has found one of late.
func endSearch(named []*Link) {
	searching.Lock()
	defer searching.Unlock()
	left := slices.DeleteFunc(slices.Clone(named), (*Link).found)
	if len(left) < len(named) {
		endSearchLater(left)
		return
	}
	for _, l := range left {
		l.sought.Store(false)
		l.Update()
		l.becomeUnsought()
	}
}

// becomeUnsought has the next search name the link. Whichever of becomeUnsought and Close
// comes second removes it again.
func (l *Link) becomeUnsought() {
	unsought.Store(l, struct{}{})
	if l.closed.Load() {
		unsought.Delete(l)
	}
}

// found reports whether no search need name the link.
func (l *Link) found() bool { return l.cc.Load() != nil || l.seen.Load() != nil || l.closed.Load() }

// known returns the link of a channel that is known already, or that its service config
// names.
func known(cc *grpc.ClientConn) *Link {
	if l := remembered(cc); l != nil {
		return l
	}
	if m := cc.GetMethodConfig("/" + linkService + "/" + linkMethod); m.Timeout != nil {
		if l, ok := links.Load(*m.Timeout); ok {
			return l.(*Link).see(cc)
		}
	}
	return remembered(cc) // it is named no more once an interceptor has found it
}

// remembered returns the link of a channel that is known already.
func remembered(cc *grpc.ClientConn) *Link {
	for _, m := range []*sync.Map{&linksOf, &linksSeen} {
		if l, ok := m.Load(cc); ok {
			return l.(*Link)
		}
	}
	return nil
}

// see remembers that the link was found to be cc's, which ends its being named for LinkOf.
// Whichever of see and Close comes second removes the entry again.
func (l *Link) see(cc *grpc.ClientConn) *Link {
	l.seen.Store(cc)
	linksSeen.Store(cc, l)
	if l.closed.Load() {
		linksSeen.CompareAndDelete(cc, l)
	}
	l.Update()
	return l
}
