// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "context"

// Env is what snapshots have to be told of the channel that they serve. The zero
// Env is of one whose RPCs have no headers. All of it but Now is the same in each
// Build of a target: what is taken over from the previous snapshot is not made
// anew for it.
type Env struct {
	// Header returns the values of a header of an RPC, by its name in lower case;
	// nil stands for none. Picks call it, for routes and hash policies that look
	// at headers. It must not retain the context.
	Header func(ctx context.Context, name string) []string
	// RequestHash returns the hash that an RPC brings along, which then counts
	// instead of those of hash policies; nil stands for none.
	RequestHash func(ctx context.Context) (hash uint64, ok bool)
	// ChannelID is the hash of hash policies by channel id: a random word that the
	// channel keeps (A42).
	ChannelID uint64
	// RingCap is the largest ring of PolicyRingHash, in entries, whatever the
	// control plane asks for (T-SEC-2); 0 means 4096.
	RingCap uint64
	// Now is the time of the build in nanoseconds, on the clock of
	// EndpointState.ReadySince.
	Now int64
}

const defaultRingCap = 4096 // entries (A42)

func (e Env) withDefaults() Env {
	if e.Header == nil {
		e.Header = func(context.Context, string) []string { return nil }
	}
	if e.RequestHash == nil {
		e.RequestHash = func(context.Context) (uint64, bool) { return 0, false }
	}
	if e.RingCap == 0 {
		e.RingCap = defaultRingCap
	}
	return e
}
