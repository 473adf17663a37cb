// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"

	"github.com/xdslb/xdslb/integrate/internal/outgoing"
	"github.com/xdslb/xdslb/picker"
)

type requestHashKey struct{}

// WithRequestHash returns a context whose RPCs are hashed to h where a cluster's
// policy hashes, whatever the route's hash policies say: for callers that have
// a good hash already, such as a shard key. It allocates once.
func WithRequestHash(ctx context.Context, h uint64) context.Context {
	return context.WithValue(ctx, requestHashKey{}, h)
}

func requestHash(ctx context.Context) (h uint64, ok bool) {
	h, ok = ctx.Value(requestHashKey{}).(uint64)
	return h, ok
}

// envLocked is what the channel's snapshots know of the channel and its RPCs.
func (b *lb) envLocked() picker.Env {
	return picker.Env{
		Header:      outgoing.Value,
		RequestHash: requestHash,
		ChannelID:   b.channelID,
		Now:         b.now(),
	}
}
