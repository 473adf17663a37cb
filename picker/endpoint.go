// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

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

	// Connectivity is the state of the connection. The caller writes it, never
	// while a Build that is given the endpoint runs; picks do not read it.
	Connectivity Connectivity
}

// Bind says what the endpoint's RPCs are counted with: the Load of its locality
// and the Breaker of its cluster. An endpoint is bound once; one that moves to
// another locality or cluster is another endpoint.
func (e *EndpointState) Bind(load *Load, breaker *Breaker) {
	e.load, e.breaker, e.silent = load, breaker, load.silent
}

// Begin counts an RPC as issued to the endpoint. Any number of goroutines may call
// it. One atomic addition, or none if nobody reports the load; does not allocate.
func (e *EndpointState) Begin() {
	if !e.silent {
		e.load.issued.Add(1)
	}
}

// Finish ends an RPC that was picked for the endpoint. It must be called exactly
// once for each. Any number of goroutines may call it. Two atomic additions, or
// one if nobody reports the load; does not allocate.
func (e *EndpointState) Finish(r CallResult) {
	e.breaker.Release()
	if !e.silent {
		e.load.finish(r)
	}
}
