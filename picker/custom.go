// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

// PolicyCustom (A52, D10) leaves the choice of the endpoint to a balancer of the
// caller's: a pick comes to Delegate with the locality in Index. It has passed the
// drops and the circuit breaker by then. The caller
//
//   - ends it with Undo if its balancer has nothing to pick, or
//   - calls Begin of the endpoint that its balancer picked, and Finish in the end.
//
// Localities with a READY endpoint are drawn from; if there are none those with an
// endpoint that is IDLE, for a balancer may want to be asked before it connects;
// otherwise RPCs wait, or fail. So the caller keeps the endpoints' Connectivity as
// with any other policy. It had better not report IDLE what no pick will connect:
// each RPC that is delegated and undone has its drop drawn again (T-DROP-4).

// Undo takes back what a pick with outcome Delegate has counted (T-CB-1). It must be
// called on the Snapshot that the Result is from, at most once and not if Finish is.
// Results with other outcomes have nothing to be undone.
func (s *Snapshot) Undo(r Result) {
	if r.Outcome == Delegate {
		s.clusters[r.Cluster].breaker.Release()
	}
}
