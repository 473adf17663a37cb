// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/xdslb/xdslb/picker"
)

// A Budget bounds how many retries of a cluster's RPCs are under way at a time, so that a
// cluster that fails is not asked for much more than its RPCs (Envoy's retry_budget and
// max_retries). A retry is under way from its back-off to its end, or until a stream has
// response headers.
//
// Envoy's percentage is of all RPCs in flight. Here it is of those that are no retries:
// 20 % are at most 1.2 attempts for each RPC.
type Budget struct {
	Limit    *picker.RetryLimit
	InFlight *picker.Breaker // counts the attempts in flight
	Active   *atomic.Int64   // retries under way, in the process
}

// acquire reports whether there may be another retry, which counts then until release.
func (b *Budget) acquire() bool {
	for {
		n := b.Active.Load()
		rest := b.InFlight.InFlight() - n
		if n >= max(int64(b.Limit.Min), int64(b.Limit.Percent/100*float64(rest))) {
			return false
		}
		if b.Active.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release ends a retry that acquire admitted.
func (b *Budget) release() { b.Active.Add(-1) }

// acquireRetry reports whether there may be another retry of the RPC. The budget, if there
// is one, is to be released when the retry has ended. If there may be none, that counts
// unless again says that it does already.
func (c *Call) acquireRetry(again bool) (b *Budget, ok bool) {
	n := uint64(1)
	if again {
		n = 0
	}
	if c.throttle().throttled() {
		c.link().unmade.throttle.Add(n)
		return nil, false
	}
	b = c.budget()
	if b == nil || b.acquire() {
		return b, true
	}
	c.link().unmade.budget.Add(n)
	return nil, false
}

// budget returns the budget of the RPC's cluster, or nil if its retries are not limited.
func (c *Call) budget() *Budget {
	link := c.link()
	if link == nil {
		return nil
	}
	t, m := link.Current(), c.settled.Load()
	if t == nil || m == nil || t.Budgets == nil {
		return nil
	}
	if i := m.clusterIn(t); i >= 0 {
		return t.Budgets[i]
	}
	return nil
}

// retryLimits has the names of the clusters whose retries are limited. Their routes' retries
// are the interceptors': gRPC knows no limit for a cluster.
type retryLimits map[string]bool

func retryLimitsOf(cfg *picker.Config) retryLimits {
	limits := retryLimits{}
	for _, c := range cfg.Clusters {
		if hasRetryLimit(c) {
			limits[c.Name] = true
		}
	}
	return limits
}

// SameRetryLimits reports whether two configurations limit the retries of the same clusters.
// O(clusters).
func SameRetryLimits(a, b *picker.Config) bool {
	return slices.EqualFunc(a.Clusters, b.Clusters, func(a, b *picker.Cluster) bool {
		return a == b || a.Name == b.Name && hasRetryLimit(a) == hasRetryLimit(b)
	}) || maps.Equal(retryLimitsOf(a), retryLimitsOf(b))
}

// hasRetryLimit reports whether the retries of a cluster's RPCs are limited.
func hasRetryLimit(c *picker.Cluster) bool {
	for i := range c.Leaves {
		if c.Leaves[i].Retries != nil {
			return true
		}
	}
	return false
}

// limited reports whether retries of a route's RPCs may be limited.
func (l retryLimits) limited(r *picker.Route) bool {
	if r.Retry == nil || len(l) == 0 {
		return false
	}
	for i := range r.Clusters {
		if l[r.Clusters[i].Name] {
			return true
		}
	}
	return false
}
