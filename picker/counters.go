// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "sync/atomic"

// lineSize is the distance between two words that avoids false sharing between processors: two
// cache lines of 64 bytes, since x86 fetches them in pairs. Only words that RPCs write are
// padded.
const lineSize = 128

// A Counter counts events on its own cache line.
//
// The zero Counter is 0 and ready to use. It must not be copied. It is safe for concurrent use.
//
// It is a single word rather than one per processor: Go has no cheap way to determine the
// processor of a goroutine, and a random word costs more than a single one (27 against 15 ns on
// two cores; an uncontended word takes 4.7 ns).
type Counter struct {
	n atomic.Uint64
	_ [lineSize - 8]byte
}

// Add adds 1.
func (c *Counter) Add() { c.n.Add(1) }

// Load returns the number of Adds so far.
func (c *Counter) Load() uint64 { return c.n.Load() }

// A Load counts the RPCs to one locality, for load reports (A27-LRS-2, T-LRS-3). The number of
// RPCs issued so far is also the position in the locality's EDF sequence. So a pick needs a
// single addition for both (D9a), and a new snapshot continues the sequence without any
// handover. RPCs to endpoints that the caller chose are counted separately, since they take no
// position.
//
// The zero Load is ready to use. It must not be copied. It is safe for concurrent use. Counts
// only grow; a reporter keeps the counts of its last report to compute differences.
//
// Pick and Finish write the same cache line. For RPCs of some duration that costs no more than
// two lines would, and short RPCs fetch it from the other processor once instead of twice
// (BenchmarkLoad/layout=joint against layout=split).
type Load struct {
	issued     atomic.Uint64
	chosen     atomic.Uint64    // issued to endpoints that the caller chose
	done       [4]atomic.Uint64 // by CallResult
	unreported bool             // chosen and done are not read; see ClusterLoad.Unreported
	_          [lineSize - 7*8]byte
}

// A CallResult is the result of an RPC.
type CallResult uint8

// The results of an RPC.
const (
	CallOK       CallResult = iota
	CallFailed              // with any other status
	CallNotSent             // never sent: the picked connection was closed before it was used
	CallCanceled            // by the client: neither a success nor a failure
)

// A LoadSnapshot has the counts of a Load at one moment.
type LoadSnapshot struct {
	// Issued counts the RPCs assigned to the locality. It decreases when an RPC was never sent,
	// so a difference can be negative. A reporter then carries it over to the next report.
	Issued uint64
	OK     uint64
	Failed uint64
	// InProgress is Issued − OK − Failed, excluding RPCs that were CallCanceled. It is never
	// negative.
	InProgress uint64
}

// issue counts one RPC as issued and returns its number, counted from 0.
func (l *Load) issue() uint64 { return l.issued.Add(1) - 1 }

// finish ends one RPC.
func (l *Load) finish(r CallResult) { l.done[r&3].Add(1) }

// Snapshot returns the counts. RPCs may be counted concurrently. It reads the results first: an
// RPC is issued before it ends, so each RPC counted as ended is also counted as issued, and an
// RPC that ends between the reads is in progress until the next snapshot.
func (l *Load) Snapshot() LoadSnapshot {
	ok, failed, void, canceled := l.done[CallOK].Load(), l.done[CallFailed].Load(), l.done[CallNotSent].Load(), l.done[CallCanceled].Load()
	issued := l.issued.Load() + l.chosen.Load() - void
	return LoadSnapshot{Issued: issued, OK: ok, Failed: failed, InProgress: issued - ok - failed - canceled}
}

// A Breaker counts the RPCs in flight to one (cluster, EDS service name) pair and rejects RPCs
// above a limit (A32). All channels of a process that use the pair share it, except for those
// that need no count.
//
// The zero Breaker has nothing in flight and is ready to use. It must not be copied. It is safe
// for concurrent use. Acquire and Release are one atomic addition each.
//
// The limit is hard: the number of RPCs that were admitted and not released never exceeds the
// limit under which each was admitted (T-CB-2 would allow an overshoot). The price is that an
// attempt about to be rejected counts until it is undone, so k concurrent attempts can make the
// breaker reject up to k RPCs early.
//
// Two cheaper designs were rejected. Credits per processor scale to more cores, but take 11 ns
// instead of 9.6 on one core, and RPCs are rejected while another processor holds credits.
// Comparing issued with finished RPCs, which are counted anyway, would save the addition in
// Acquire, but is no limit: each rejection counts as finished, so two attempts that stall
// between being issued and reading the finished RPCs can both take the last slot.
type Breaker struct {
	inFlight atomic.Int64
	// Unlimited, set before the first use, means that nothing needs the number of RPCs in flight
	// (Leaf.CountsRPCs). The breaker then admits all RPCs and does not count them, which saves each RPC two additions to
	// a cache line that all processors share.
	Unlimited bool
	_         [lineSize - 9]byte
}

// Acquire admits one RPC if fewer than limit are in flight, and reports whether it did. A limit
// of 0 admits no RPCs. Callers may pass different limits, since each channel has its own
// version of the configuration. After a limit is lowered, RPCs are rejected until enough RPCs
// have finished.
func (b *Breaker) Acquire(limit uint32) bool {
	if b.Unlimited || b.inFlight.Add(1) <= int64(limit) {
		return true
	}
	b.inFlight.Add(-1)
	return false
}

// Release ends an RPC that Acquire admitted. It must be called exactly once per admitted RPC.
func (b *Breaker) Release() {
	if !b.Unlimited {
		b.inFlight.Add(-1)
	}
}

// InFlight returns the number of RPCs in flight. Bounded loads use it
// (RingPolicy.BalanceFactor).
func (b *Breaker) InFlight() int64 { return b.inFlight.Load() }
