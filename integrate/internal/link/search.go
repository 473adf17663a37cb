// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"runtime"
	"sync"
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
