// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// exitingIdle contains the channels that ExitIdle is waking: *grpc.ClientConn to chan struct{}, which is
// closed at the end.
var exitingIdle sync.Map

// ExitIdle makes a channel leave idle mode, for an RPC or WaitReady. gRPC offers only Connect for this,
// and reports it to the LB policy as the user's request to connect (ExitIdle), after it has built
// the resolver, and possibly after the first configuration. An RPC needs no endpoint but the one
// that it picks, so the link of that resolver records the call: see ConsumeExitIdle. ExitIdle does nothing if
// the channel is not idle.
func ExitIdle(ctx context.Context, cc *grpc.ClientConn) {
	done := make(chan struct{})
	if other, busy := exitingIdle.LoadOrStore(cc, done); busy {
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
		}
		return
	}
	defer func() {
		exitingIdle.Delete(cc)
		close(done)
	}()
	if cc.GetState() == connectivity.Idle && Of(cc) == nil {
		cc.Connect() // resolvers usually send their first state before this returns
	}
}

// recordExitIdle records whether ExitIdle builds the link's resolver. If two idle channels of one target are
// woken at the same time, one by ExitIdle and one by its user, the second may be taken for the first:
// its first RPC connects it then.
func (l *Link) recordExitIdle() {
	exitingIdle.Range(func(cc, _ any) bool {
		l.exitIdlePending.Store(cc.(*grpc.ClientConn).CanonicalTarget() == l.Canonical)
		return !l.exitIdlePending.Load()
	})
}

// ConsumeExitIdle reports whether a call of ExitIdle was caused by ExitIdle. It does so once for each link
// that ExitIdle created.
func (l *Link) ConsumeExitIdle() bool { return l.exitIdlePending.Swap(false) }
