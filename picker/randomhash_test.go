// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/xdslb/xdslb/ringhash"
)

// keptHashes is the plainest randomHashes: RPCs have contexts of their own.
type keptHashes map[context.Context]uint64

func (k keptHashes) Of(ctx context.Context, drawn uint64, wait bool) uint64 {
	if hash, ok := k[ctx]; ok {
		return hash
	}
	if wait {
		k[ctx] = drawn
	}
	return drawn
}

// forgotten is for tests that pick once for each RPC.
type forgotten struct{}

func (forgotten) Of(_ context.Context, drawn uint64, _ bool) uint64 { return drawn }

type rpcNumber struct{}

// A hashlessRPC is one that has nothing to hash, and is picked for until it gets an endpoint.
type hashlessRPC struct {
	ctx  context.Context
	hash uint64 // of its first pick
}

// hashlessTrial is a ring whose endpoints come up and go as RPCs without a hash ask for them.
type hashlessTrial struct {
	*world
	rng     *rand.Rand
	ring    *ringhash.Ring
	built   []Connectivity // the states in the latest build
	waiting []hashlessRPC
	made    int
	seen    [PickedConnect + 1]int
}

// try picks for an RPC, as the walk on the ring from its first hash does, and reports whether
// it has ended.
func (h *hashlessTrial) try(t *testing.T, rpc hashlessRPC, r uint64) (over bool) {
	t.Helper()
	index, _, outcome := slowSeek(h.ring, h.built, rpc.hash, false)
	got := h.snapshot.Pick(rpc.ctx, "/s/m", r)
	if want := (Result{outcome, 0, 0, int32(index)}); got != want {
		t.Fatalf("RPC with random hash %#x: Pick = %+v, want %+v; endpoints are in %v", rpc.hash, got, want, h.built)
	}
	h.seen[outcome]++
	switch outcome {
	case Picked:
		h.flat(0)[index].Finish(CallOK)
		return true
	case QueueConnect:
		if e := h.flat(0)[index]; e.Connectivity == Idle {
			e.Connectivity = Connecting
		}
	}
	return outcome == Failed
}

// publish builds a snapshot, and picks again for all RPCs that wait.
func (h *hashlessTrial) publish(t *testing.T) {
	t.Helper()
	h.states[0].Version++
	h.build(t)
	h.built = nil
	for _, e := range h.flat(0) {
		h.built = append(h.built, e.Connectivity)
	}
	var left []hashlessRPC
	for _, rpc := range h.waiting {
		if !h.try(t, rpc, h.rng.Uint64()) {
			left = append(left, rpc)
		}
	}
	h.waiting = left
}

// begin makes an RPC.
func (h *hashlessTrial) begin(t *testing.T) {
	t.Helper()
	h.made++
	r := h.rng.Uint64()
	rpc := hashlessRPC{context.WithValue(bg, rpcNumber{}, h.made), draw(r, drawHash)}
	if !h.try(t, rpc, r) {
		h.waiting = append(h.waiting, rpc)
	}
}

// T-RING-6, A42: while an RPC without a hash waits, and endpoints change at random, each of its
// picks uses the hash of the first one. So it waits for another endpoint only if that of its
// hash has failed.
func TestRandomHashIsKept(t *testing.T) {
	var seen [PickedConnect + 1]int
	for seed := range uint64(30) {
		rng := newRand(seed)
		list := make([]uint32, 2+rng.IntN(12))
		for i := range list {
			list[i] = 1 + rng.Uint32N(4)
		}
		localities := []Locality{zone("a", 1, endpoints(0, list...)), zone("b", 2, endpoints(20, 1, 3))}
		w, _, some := ringWorld(PolicyRingHash, RingPolicy{MinSize: 64, MaxSize: 256}, localities...)
		*some = false
		w.env.RandomHashes = keptHashes{}
		h := &hashlessTrial{world: w, rng: rng, ring: slowRing(t, localities, 64, 256, ringhash.XXH3)}
		for _, e := range w.flat(0) {
			e.Connectivity = Idle
		}
		h.publish(t)
		for range 300 {
			for _, e := range w.flat(0) {
				if rng.IntN(8) > 0 {
					continue
				}
				switch e.Connectivity {
				case Connecting:
					e.Connectivity = pick(rng, Ready, Ready, TransientFailure, Idle)
				case Ready:
					e.Connectivity = pick(rng, Ready, Idle, TransientFailure)
				case TransientFailure:
					e.Connectivity = Ready
				}
			}
			if rng.IntN(2) == 0 {
				h.publish(t)
			}
			for range rng.IntN(4) {
				h.begin(t)
			}
		}
		for i, n := range h.seen {
			seen[i] += n
		}
	}
	for _, outcome := range []Outcome{Picked, Queue, QueueConnect, Failed} {
		if seen[outcome] < 10 {
			t.Errorf("outcome %d was seen %d times in all", outcome, seen[outcome])
		}
	}
}

// A42: from the first RPC on, RPCs without a hash are shared by the weights of the ring,
// exactly like their hashes. An endpoint that does not answer delays only its own share.
func TestRandomHashSharesFromTheStart(t *testing.T) {
	localities := []Locality{zone("a", 1, endpoints(0, 1, 1, 2, 4))}
	w, _, some := ringWorld(PolicyRingHash, RingPolicy{MinSize: 1024, MaxSize: 4096}, localities...)
	*some = false
	w.env.RandomHashes = keptHashes{}
	h := &hashlessTrial{world: w, rng: newRand(1), ring: slowRing(t, localities, 1024, 4096, ringhash.XXH3)}
	list := w.flat(0)
	for _, e := range list {
		e.Connectivity = Idle
	}
	h.publish(t)
	const silent = 2
	for round := range 100 {
		for range 20 {
			h.begin(t)
		}
		if i := round % len(list); i != silent && list[i].Connectivity == Connecting {
			list[i].Connectivity = Ready
		}
		h.publish(t)
	}
	if n := len(h.waiting); n < h.made*2/10 || n > h.made*3/10 {
		t.Errorf("%d of %d RPCs wait, want the share of the endpoint that is silent, a quarter", n, h.made)
	}
	for _, rpc := range h.waiting {
		if h.ring.Pick(rpc.hash) != silent {
			t.Errorf("an RPC of endpoint %d waits", h.ring.Pick(rpc.hash))
		}
	}
}
