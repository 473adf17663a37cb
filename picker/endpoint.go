// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "sync/atomic"

// An EndpointState is what snapshots share of one endpoint (D9). The caller
// embeds it in whatever it keeps of an endpoint and binds Finish to it once, so
// that the end of an RPC needs nothing that was made for that RPC, and a long
// stream keeps no snapshot alive.
//
// The zero EndpointState is idle and must be bound before it is given to Build.
// It must not be copied afterwards.
type EndpointState struct {
	load    *Load
	breaker *Breaker
	silent  bool // a copy of load's, so that Finish need not fetch it
	counted bool // in inFlight
	// Connectivity is the state of the connection. The caller writes this and the
	// following fields, never while a Build that is given the endpoint runs; picks
	// do not read them.
	Connectivity Connectivity
	// Ejected says that outlier detection has ejected the endpoint (A50). It then
	// gets no RPC while it is READY, as if its connection had failed.
	Ejected bool

	inFlight atomic.Int32  // RPCs
	weight   atomic.Uint32 // own weight, the bits of a float32

	// ReadySince is when the endpoint became READY, in nanoseconds on the clock of
	// Env.Now. Only slow start wants to know.
	ReadySince int64
}

// Bind says what the endpoint's RPCs are counted with: the Load of its locality
// and the Breaker of its cluster. An endpoint is bound once; one that moves to
// another locality or cluster is another endpoint.
func (e *EndpointState) Bind(load *Load, breaker *Breaker) {
	e.load, e.breaker, e.silent = load, breaker, load.silent
}

// CountInFlight makes the endpoint count the RPCs that it has in flight, which
// costs each RPC two additions. It must be called before the first pick, for
// endpoints of policies that want it and no others (Policy.CountsInFlight): the end
// of an RPC cannot tell whether its beginning was counted, so an endpoint whose
// policy changes its mind is another endpoint.
func (e *EndpointState) CountInFlight() { e.counted = true }

// Begin counts an RPC as issued to the endpoint. Any number of goroutines may call
// it. At most two atomic additions; does not allocate.
func (e *EndpointState) Begin() {
	if !e.silent {
		e.load.ticket()
	}
	if e.counted {
		e.inFlight.Add(1)
	}
}

// Finish ends an RPC that was picked for the endpoint. It must be called exactly
// once for each. Any number of goroutines may call it. Two atomic additions, one
// less if nobody reports the load and one more if RPCs in flight are counted; does
// not allocate.
func (e *EndpointState) Finish(r CallResult) {
	e.breaker.Release()
	if !e.silent {
		e.load.finish(r)
	}
	if e.counted {
		e.inFlight.Add(-1)
	}
}
