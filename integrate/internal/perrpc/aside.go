// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
)

// aside counts the links that stand aside, by target. A channel whose resolver is another
// package's names its link once that has told gRPC a service config; until then its RPCs
// know it by its target, and wait in gRPC rather than in an interceptor. Two channels of
// one target may differ, if the environment changed in between: the first RPC of one that
// is ours asks for its service config before it comes here.
var aside asideTargets

type asideTargets struct {
	any    atomic.Int64 // all of them
	mu     sync.Mutex
	counts map[string]int
}

// add adds n links of a target.
func (a *asideTargets) add(target string, n int) {
	a.any.Add(int64(n))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counts == nil {
		a.counts = map[string]int{}
	}
	if a.counts[target] += n; a.counts[target] == 0 {
		delete(a.counts, target)
	}
}

// has reports whether there is a link that stands aside with the channel's target.
func (a *asideTargets) has(cc *grpc.ClientConn) bool {
	if a.any.Load() == 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[cc.CanonicalTarget()] > 0
}

// LinkAside returns the link of a channel that was handed to another package's resolver,
// or nil. While that resolver has said nothing, it may be the one of another channel of the
// same target.
func LinkAside(cc *grpc.ClientConn) *Link {
	if l := known(cc); l != nil && l.Aside {
		return l
	} else if l != nil || !aside.has(cc) {
		return nil
	}
	target := cc.CanonicalTarget()
	all := Links()
	if i := slices.IndexFunc(all, func(l *Link) bool { return l.Aside && l.Target == target }); i >= 0 {
		return all[i]
	}
	return nil
}

// Channel returns the channel of the link, or nil before an interceptor has asked for it.
func (l *Link) Channel() *grpc.ClientConn { return l.cc.Load() }
