// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// wakes has the channels that Wake is waking: *grpc.ClientConn to chan struct{}, which is closed
// at the end.
var wakes sync.Map

// Wake has a channel leave idle mode, for an RPC or for whoever waits for one. gRPC has nothing
// but Connect for that, and passes it on to the LB policy as the user's wish to be connected
// (ExitIdle): after it has made the resolver, and maybe after the first configuration is in
// force. An RPC needs the endpoint that it picks and no other, so the link of that resolver
// takes a note: see TakeWake. A channel that is awake is left alone.
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
		cc.Connect() // resolvers usually say what they have to before this returns
	}
}

// noteWake notes whether Wake makes the link's resolver. Of two channels of one target that are
// woken at the same time, the one that its user connects may be taken for the other: it is
// connected by its first RPC then.
func (l *Link) noteWake() {
	wakes.Range(func(cc, _ any) bool {
		l.woken.Store(cc.(*grpc.ClientConn).CanonicalTarget() == l.Canonical)
		return !l.woken.Load()
	})
}

// TakeWake reports whether a call of ExitIdle is Wake's. There is one for each link that Wake
// made.
func (l *Link) TakeWake() bool { return l.woken.Swap(false) }
