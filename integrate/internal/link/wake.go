// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// wakes contains the channels that Wake is waking: *grpc.ClientConn to chan struct{}, which is
// closed at the end.
var wakes sync.Map

// Wake makes a channel leave idle mode, for an RPC or WaitReady. gRPC offers only Connect for this,
// and reports it to the LB policy as the user's request to connect (ExitIdle), after it has built
// the resolver, and possibly after the first configuration. An RPC needs no endpoint but the one
// that it picks, so the link of that resolver records the call: see TakeWake. Wake does nothing if
// the channel is not idle.
func Wake(ctx context.Context, cc *grpc.ClientConn) {
	done := make(chan struct{})
	if other, busy := wakes.LoadOrStore(cc, done); busy {
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
		}
		return
	}
	defer func() {
		wakes.Delete(cc)
		close(done)
	}()
	if cc.GetState() == connectivity.Idle && Of(cc) == nil {
		cc.Connect() // resolvers usually send their first state before this returns
	}
}

// noteWake records whether Wake builds the link's resolver. If two idle channels of one target are
// woken at the same time, one by Wake and one by its user, the second may be taken for the first:
// its first RPC connects it then.
func (l *Link) noteWake() {
	wakes.Range(func(cc, _ any) bool {
		l.woken.Store(cc.(*grpc.ClientConn).CanonicalTarget() == l.Canonical)
		return !l.woken.Load()
	})
}

// TakeWake reports whether a call of ExitIdle was caused by Wake. It does so once for each link
// that Wake created.
func (l *Link) TakeWake() bool { return l.woken.Swap(false) }
