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
// It is a single word rather than one per processor, since it counts RPCs that are refused.
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
// (BenchmarkLoad/layout=joint against layout=split). While several processors pick at the same
// time, they write stripes instead: see loadStripes.
type Load struct {
	issued atomic.Uint64    // positions of the sequence that picks or stripes have taken
	counts [5]atomic.Uint64 // by CallResult; countChosen
	misses contention       // of issued
	last   lastUser         // of issued while it is striped

	// On another line than the words above, which are written all the time.
	stripes    atomic.Pointer[loadStripes] // nil before the Load is first striped
	striped    atomic.Uint32               // 1 while RPCs use the stripes
	unreported bool                        // counts are not read; see ClusterLoad.Unreported
	_          [lineSize - 9*8 - 5]byte
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

// countChosen is the index in Load.counts of the RPCs issued to endpoints that the caller chose.
const countChosen = 4

// issue counts one RPC as issued and returns its position in the sequence. Each position is
// returned once.
func (l *Load) issue() uint64 {
	n := l.issued.Load()
	if l.striped.Load() != 0 || !l.issued.CompareAndSwap(n, n+1) {
		n = l.issueSlowly()
	}
	return n
}

// finish ends one RPC.
func (l *Load) finish(r CallResult) { l.count(int(r & 3)) }

// count adds one to a count.
func (l *Load) count(k int) {
	if l.striped.Load() == 0 {
		l.counts[k].Add(1)
	} else {
		l.countInStripe(k)
	}
}

// Snapshot returns the counts. RPCs may be counted concurrently. It reads the results first: an
// RPC is issued before it ends, so each RPC counted as ended is also counted as issued, and an
// RPC that ends between the reads is in progress until the next snapshot. Likewise it reads the
// positions that stripes have left before the positions that they have taken: at the moment at
// which a stripe takes positions, all of these count as issued.
func (l *Load) Snapshot() LoadSnapshot {
	stripes := l.stripes.Load()
	var counts [len(l.counts)]uint64
	for k := range counts {
		counts[k] = l.counts[k].Load() + stripes.counted(k)
	}
	left := stripes.left()
	issued := l.issued.Load() - left + counts[countChosen] - counts[CallNotSent]
	return LoadSnapshot{Issued: issued, OK: counts[CallOK], Failed: counts[CallFailed], InProgress: issued - counts[CallOK] - counts[CallFailed] - counts[CallCanceled]}
}
