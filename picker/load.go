// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "sync/atomic"

// A Load counts the RPCs to one locality: what LRS reports of it (A27-LRS-2,
// T-LRS-3), and its place in the EDF sequence. The number of RPCs issued so far
// is the ticket of the next one, so that a pick pays for both with one addition
// (D9a), and a new snapshot goes on where the last one was without a word
// passing between them.
//
// The zero Load is ready to use. It must not be copied. Any number of goroutines
// may use it. Counts only grow; whoever reports differences remembers what it
// read last.
//
// Pick and Finish write one line, not two: RPCs of some length are no dearer for
// it, and short ones get it from the other processor once instead of twice
// (BenchmarkLoad/layout=joint against layout=split).
type Load struct {
	issued atomic.Uint64
	done   [4]atomic.Uint64 // by CallResult
	silent bool             // nobody reads done; see ClusterLoad.Silent
	_      [lineSize - 6*8]byte
}

// A CallResult says how an RPC ended.
type CallResult uint8

// The ways an RPC can end.
const (
	CallOK     CallResult = iota
	CallFailed            // with any other status
	CallVoid              // never sent: the connection was gone when the pick came to be used
)

// A LoadSnapshot is what a Load had counted at one moment.
type LoadSnapshot struct {
	// Issued counts the RPCs that were given to the locality. It steps back
	// when one of them turns out never to have been sent, so differences of it
	// can be negative; add them up until they are not.
	Issued uint64
	OK     uint64
	Failed uint64
	// InProgress is Issued − OK − Failed, and never negative.
	InProgress uint64
}

// ticket issues one RPC and returns its number, counted from 0.
func (l *Load) ticket() uint64 { return l.issued.Add(1) - 1 }

// finish ends one RPC.
func (l *Load) finish(r CallResult) { l.done[r&3].Add(1) }

// Snapshot returns the counts. RPCs go on being counted meanwhile. The results
// are read first: an RPC is issued before it ends, so none is seen to have ended
// that was not issued, and one that ends between the reads counts as in progress
// until the next snapshot.
func (l *Load) Snapshot() LoadSnapshot {
	ok, failed, void := l.done[CallOK].Load(), l.done[CallFailed].Load(), l.done[CallVoid].Load()
	issued := l.issued.Load() - void
	return LoadSnapshot{Issued: issued, OK: ok, Failed: failed, InProgress: issued - ok - failed}
}
