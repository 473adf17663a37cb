// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "context"

// Env describes the channel of a snapshot. The zero Env describes a channel whose RPCs have no
// headers. All fields except Routed and Now must be the same in each Build of a target, since parts
// reused from the previous snapshot depend on them.
type Env struct {
	// Header returns the values of a header of an RPC, by its name in lower case, or nil
	// if the RPC lacks it. Picks call it for routes and hash policies that read headers.
	// It must not retain the context.
	Header func(ctx context.Context, name string) []string
	// RequestHash returns an explicit hash of an RPC, which takes precedence over hash
	// policies. nil means that no RPC has one.
	RequestHash func(ctx context.Context) (hash uint64, ok bool)
	// RandomHashes has the hashes of RPCs that have nothing to hash. Without it any READY
	// endpoint may serve such an RPC (A76), even if the policy names no header.
	RandomHashes randomHashes
	// ChannelID is the hash of hash policies by channel id: a random word that is constant for
	// the life of the channel (A42).
	ChannelID uint64
	// RingCap is the maximum size of a ring of ring hash, in entries, regardless of the
	// control plane's configuration (T-SEC-2). 0 means 4096, gRPC's cap (A42), which package
	// integrate uses. Proxies with larger rings raise it, as the benchmarks do.
	RingCap uint64
	// Routed, if not nil, is a snapshot of another Build with the same routes and names of clusters,
	// from which Build takes the compiled routes. It may be made where the states of clusters are not
	// known, such as without a mutex that guards them.
	Routed *Snapshot
	// Now is the time of the build in nanoseconds, on the clock of EndpointState.StateSince.
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
