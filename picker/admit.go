// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

// Admit is PickCluster for an RPC whose endpoint is known, as by session affinity
// (A55): the drops and the circuit breaker, which come before the choice of an
// endpoint and hold for it too. Unless the outcome is Picked, which says nothing
// of an endpoint, that is how the pick ends, or else what has to be known about
// the cluster first. After Picked the caller owes the endpoint Begin and Finish.
//
// An endpoint that gets RPCs this way takes tickets of its locality's sequence, as
// if it had been its turn. Does not allocate.
func (s *Snapshot) Admit(cluster int32, r uint64) Result {
	if k := uint(cluster); k >= uint(len(s.clusters)) {
		return Result{Outcome: NoRoute, Route: -1, Cluster: -1}
	}
	c := s.clusters[cluster]
	res := Result{Outcome: c.outcome, Route: -1, Cluster: cluster}
	if c.outcome != Picked {
		return res
	}
	if c.dropped > 0 {
		if x := draw(r, drawDrop); c.dropped.hit(x) {
			res.Outcome, res.Index = Dropped, c.drop(x)
			return res
		}
	}
	if !c.breaker.Acquire(c.limit) {
		c.overload.Add()
		res.Outcome = Overloaded
	}
	return res
}
