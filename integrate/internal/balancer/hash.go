// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"sync"
	"sync/atomic"
)

// randomHashes are the random hashes of RPCs that had to wait for an endpoint: those of a
// channel. Each is kept to the end of its RPC, whose picks and gRPC's further attempts have
// it, too (T-RING-6).
//
// gRPC's picks have nothing to tell an RPC by but its context. That one's Done channel is made
// by gRPC for each RPC, and is the same for all attempts at it.
type randomHashes struct {
	count  atomic.Int64
	byDone sync.Map // <-chan struct{} to uint64
}

// Of implements picker.RandomHashes: one load while no RPC has waited.
func (h *randomHashes) Of(ctx context.Context, drawn uint64) uint64 {
	if h.count.Load() > 0 {
		if hash, ok := h.byDone.Load(ctx.Done()); ok {
			return hash.(uint64)
		}
	}
	return drawn
}

// Keep implements picker.RandomHashes. An RPC that never ends, which gRPC has none of, draws
// anew for each pick.
func (h *randomHashes) Keep(ctx context.Context, hash uint64) {
	done := ctx.Done()
	if done == nil {
		return
	}
	if _, kept := h.byDone.LoadOrStore(done, hash); kept {
		return
	}
	h.count.Add(1)
	context.AfterFunc(ctx, func() {
		h.byDone.Delete(done)
		h.count.Add(-1)
	})
}
