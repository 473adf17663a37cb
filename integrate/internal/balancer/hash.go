// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"sync"
	"sync/atomic"
)

// randomHashes are the random hashes of a channel's RPCs that had to wait for an endpoint. Each
// is kept until its RPC ends, so that later picks and gRPC's further attempts use the same hash
// (T-RING-6).
//
// The context is the only identity of an RPC in gRPC's picks. gRPC makes the context's Done
// channel for each RPC, and it is the same for all attempts: see doneIdentifiesRPC.
type randomHashes struct {
	count   atomic.Int64
	byDone  sync.Map // <-chan struct{} to uint64
	perPick bool     // contexts do not identify RPCs: each pick gets a new hash
}

// Of implements picker.randomHashes: one load while no RPC waits. An RPC that cannot end, which
// gRPC never makes, gets a new hash for each pick.
func (h *randomHashes) Of(ctx context.Context, drawn uint64, wait bool) uint64 {
	if !wait && h.count.Load() == 0 {
		return drawn
	}
	if h.perPick {
		return drawn
	}
	done := ctx.Done()
	if hash, ok := h.byDone.Load(done); ok {
		return hash.(uint64)
	}
	if !wait || done == nil {
		return drawn
	}
	if hash, kept := h.byDone.LoadOrStore(done, drawn); kept {
		return hash.(uint64)
	}
	h.count.Add(1)
	context.AfterFunc(ctx, func() {
		h.byDone.Delete(done)
		h.count.Add(-1)
	})
	return drawn
}
