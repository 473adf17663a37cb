// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import "google.golang.org/grpc"

// aside has the links that stand aside. A channel whose resolver is another
// package's names its link once that has told gRPC a service config; until then its RPCs
// know it by its target, and wait in gRPC rather than in an interceptor. Two channels of
// one target may differ, if the environment changed in between: the first RPC of one that
// is ours asks for its service config before it comes here.
var aside linksByTarget

// LinkAside returns the link of a channel that was handed to another package's resolver,
// or nil. While that resolver has said nothing, it may be the one of another channel of the
// same target.
func LinkAside(cc *grpc.ClientConn) *Link {
	switch l := known(cc); {
	case l == nil:
		return aside.any(cc.CanonicalTarget())
	case l.Aside:
		return l
	}
	return nil
}

// Channel returns the channel of the link, or nil before an interceptor has asked for it.
func (l *Link) Channel() *grpc.ClientConn { return l.cc.Load() }
