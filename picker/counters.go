// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "sync/atomic"

// lineSize is the distance between two words that keeps processors which write them from
// taking the cache line away from each other: two lines of 64 bytes, since x86 fetches
// them in pairs. Only words that RPCs write are padded.
const lineSize = 128

// A Counter counts events on a cache line of its own.
//
// The zero Counter is 0 and ready to use. It must not be copied. Any number of
// goroutines may use it.
//
// It is one word, not one for each processor: Go has no cheap way to tell which processor
// a goroutine runs on, and a word chosen at random costs more than a single one (27
// against 15 ns on two cores; a word that nobody else writes takes 4.7).
type Counter struct {
	n atomic.Uint64
	_ [lineSize - 8]byte
}

// Add adds 1.
func (c *Counter) Add() { c.n.Add(1) }

// Load returns the number of Adds so far.
func (c *Counter) Load() uint64 { return c.n.Load() }

// A Load counts the RPCs to one locality, for load reports (A27-LRS-2, T-LRS-3). The
// number of RPCs issued so far is also the position in the locality's EDF sequence, so one
// addition in a pick does both (D9a), and a new snapshot continues where the last one was
// without handing anything over.
//
// The zero Load is ready to use. It must not be copied. Any number of goroutines may use
// it. Counts only grow. A reporter of differences remembers what it read last.
//
// Pick and Finish write the same cache line. For RPCs of some length that costs no more
// than two lines would, and short RPCs fetch it from the other processor once instead of
// twice (BenchmarkLoad/layout=joint against layout=split).
type Load struct {
	issued     atomic.Uint64
	done       [4]atomic.Uint64 // by CallResult
	unreported bool             // nobody reads done; see ClusterLoad.Unreported
	_          [lineSize - 6*8]byte
}

// A CallResult says how an RPC ended.
type CallResult uint8

// The ways an RPC can end.
const (
	CallOK       CallResult = iota
	CallFailed              // with any other status
	CallNotSent             // never sent: the connection was gone when the pick came to be used
	CallCanceled            // by the client, which needs it no more: neither a success nor a failure
)

// A LoadSnapshot has the counts of a Load at one moment.
type LoadSnapshot struct {
	// Issued counts the RPCs that were given to the locality. It decreases when one
	// of them turns out never to have been sent, so a difference can be negative. A
	// reporter then carries it over to the next report.
	Issued uint64
	OK     uint64
	Failed uint64
	// InProgress is Issued − OK − Failed, without the RPCs that were CallCanceled. It is
	// never negative.
	InProgress uint64
}

// issue counts one RPC as issued and returns its number, counted from 0.
func (l *Load) issue() uint64 { return l.issued.Add(1) - 1 }

// finish ends one RPC.
func (l *Load) finish(r CallResult) { l.done[r&3].Add(1) }

// Snapshot returns the counts. RPCs may be counted meanwhile. It reads the results first:
// an RPC is issued before it ends, so each RPC that is seen to have ended is seen as
// issued, and one that ends between the reads is in progress until the next snapshot.
func (l *Load) Snapshot() LoadSnapshot {
	ok, failed, void, canceled := l.done[CallOK].Load(), l.done[CallFailed].Load(), l.done[CallNotSent].Load(), l.done[CallCanceled].Load()
	issued := l.issued.Load() - void
	return LoadSnapshot{Issued: issued, OK: ok, Failed: failed, InProgress: issued - ok - failed - canceled}
}

// A Breaker counts the RPCs in flight to one (cluster, EDS service name) pair
// and refuses those above a limit (A32). All channels of a process that use the
// pair share it.
//
// The zero Breaker has nothing in flight and is ready to use. It must not be
// copied. Any number of goroutines may use it. Acquire and Release are one
// atomic addition each.
//
// The limit is hard: among RPCs that were admitted and not released there are never more
// than the limit that each was admitted under (T-CB-2 would allow an overshoot). The price
// is that an attempt about to be refused counts until it is undone, so k attempts at the
// same time can make the breaker refuse up to k RPCs early.
//
// Two cheaper ways were rejected. Credits per processor scale to more cores, but take
// 11 ns instead of 9.6 on one, and RPCs are refused while another processor holds credits.
// Comparing issued with finished RPCs, which are counted anyway, would save the addition in
// Acquire, but is no limit: each refusal counts as finished, so two attempts that stall
// between being issued and reading the finished ones can both take the last place.
type Breaker struct {
	inFlight atomic.Int64
	_        [lineSize - 8]byte
}

// Acquire admits one RPC if fewer than limit are in flight, and reports whether it did. A
// limit of 0 admits none. Callers may pass different limits, since each channel has its
// own version of the configuration. After a limit was lowered RPCs are refused until
// enough are done.
func (b *Breaker) Acquire(limit uint32) bool {
	if b.inFlight.Add(1) <= int64(limit) {
		return true
	}
	b.inFlight.Add(-1)
	return false
}

// Release ends an RPC that Acquire admitted. It must be called exactly once for
// each.
func (b *Breaker) Release() { b.inFlight.Add(-1) }

// InFlight returns the number of RPCs in flight. Bounded loads compare with it
// (RingPolicy.BalanceFactor).
func (b *Breaker) InFlight() int64 { return b.inFlight.Load() }
