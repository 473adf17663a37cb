// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package counters

import "testing"

// TestBreakerOfPair: a cluster's circuit breaker is another one if its EDS service is another,
// and the same one in all channels (A32, T-CB-2).
func TestBreakerOfPair(t *testing.T) {
	one, same := AcquireBreaker(t.Name(), "a"), AcquireBreaker(t.Name(), "a")
	service, cluster := AcquireBreaker(t.Name(), "b"), AcquireBreaker(t.Name()+"2", "a")
	defer func() {
		for _, b := range []*Breaker{one, same, service, cluster} {
			b.Unref()
		}
	}()
	if one != same || one == service || one == cluster {
		t.Errorf("the same pair has the same breaker: %v, another service: %v, another cluster: %v; want true, false, false",
			one == same, one == service, one == cluster)
	}
}
