// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math"
	"slices"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/xdslb/xdslb/picker"
)

// retryCodes are the conditions of retry_on for gRPC statuses. The other conditions are for
// HTTP, and ignored (A44).
var retryCodes = map[string]uint32{
	"cancelled":          1,
	"deadline-exceeded":  4,
	"resource-exhausted": 8,
	"internal":           13,
	"unavailable":        14,
}

// previousHosts is the retry_host_predicate that excludes endpoints of previous attempts. Other
// predicates, which use metadata of endpoints, are ignored (A44), and so is retry_priority:
// attempts go to the active priority (A56), since lower ones have no connections. Both are
// reported as unsupported.
//
// host_selection_retry_max_attempts is not used. It limits how often Envoy repeats the pick
// until it finds a host that was not tried; here such a host is found directly if it exists.
const previousHosts = "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"

// timeoutConditions are the conditions of retry_on for attempts that exceed per_try_timeout. Envoy
// resets such an attempt, and retries it under its conditions for resets. DEADLINE_EXCEEDED is the
// status of the attempt here.
var timeoutConditions = []string{"deadline-exceeded", "5xx", "gateway-error", "reset"}

// retryPolicy converts a retry policy (A44, and Envoy's per_try_timeout). It returns nil if the policy allows no retries,
// although a route's policy then still replaces that of its virtual host.
func retryPolicy(m *routev3.RetryPolicy, p *path) *picker.RetryPolicy {
	if m == nil {
		return nil
	}
	r := &picker.RetryPolicy{MaxAttempts: 2}
	r.PerTryTimeout = p.dot("per_try_timeout").duration(m.GetPerTryTimeout())
	for s := range strings.SplitSeq(m.GetRetryOn(), ",") {
		s = lower(strings.TrimSpace(s))
		code, ok := retryCodes[s]
		if ok && !slices.Contains(r.On, code) {
			r.On = append(r.On, code)
		}
		r.OnTimeout = r.OnTimeout || r.PerTryTimeout > 0 && slices.Contains(timeoutConditions, s)
	}
	if m.GetNumRetries() != nil {
		n := m.GetNumRetries().GetValue()
		if n == 0 {
			p.dot("num_retries").refuse(n, "must be at least 1")
		}
		r.MaxAttempts = int(min(uint64(n)+1, 5))
	}
	for _, h := range m.GetRetryHostPredicate() {
		if h.GetTypedConfig().GetTypeUrl() == previousHosts {
			r.OtherHosts = true
		} else {
			p.to.ignore("retry_host_predicate " + quote(h.GetName()))
		}
	}
	if of := m.GetRetryPriority(); of != nil {
		p.to.ignore("retry_priority " + quote(of.GetName()))
	}
	p.to.ignoreIn(m)
	r.BaseBackoff, r.MaxBackoff = backoff(m.GetRetryBackOff(), p.dot("retry_back_off"))
	if len(r.On) == 0 && !r.OnTimeout {
		if r.PerTryTimeout > 0 {
			p.to.ignore("RetryPolicy.per_try_timeout without a supported condition in retry_on")
		}
		if m.GetRetryOn() != "" {
			p.to.ignore("retry_on " + quote(m.GetRetryOn()) + ", which contains no gRPC status to retry")
		}
		return nil
	}
	return r
}

// hedges reports whether hedge_policy enables hedging of unary RPCs. p is the path of its
// parent.
func hedges(m *routev3.HedgePolicy, p *path) bool {
	p.to.ignoreIn(m)
	if m.GetInitialRequests().GetValue() > 1 {
		p.to.ignore("HedgePolicy.initial_requests")
	}
	return m.GetHedgeOnPerTryTimeout()
}

// backoff returns the limits of the backoff between attempts. Limits below a millisecond count
// as one millisecond. A max_interval below base_interval, which A44 allows, limits the first
// backoff as well.
func backoff(m *routev3.RetryPolicy_RetryBackOff, p *path) (base, limit time.Duration) {
	if m == nil {
		return 25 * time.Millisecond, 250 * time.Millisecond
	}
	base = p.dot("base_interval").duration(m.GetBaseInterval())
	if base == 0 {
		p.dot("base_interval").fail("must be above 0")
	}
	limit = p.dot("max_interval").duration(m.GetMaxInterval())
	switch {
	case m.GetMaxInterval() == nil:
		base = max(base, time.Millisecond)
		return base, 10 * min(base, math.MaxInt64/10)
	case limit == 0:
		p.dot("max_interval").fail("must be above 0")
	}
	limit = max(limit, time.Millisecond)
	return min(max(base, time.Millisecond), limit), limit
}
