// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"time"

	"github.com/xdslb/xdslb/picker"
)

// WeightSource returns the origin of the weight that picks use. reported is the number of READY
// endpoints with a weight from their reports (A58).
func WeightSource(p *picker.Policy, e *picker.EndpointState, reported int) string {
	switch {
	case p.Kind == picker.PolicyRoundRobin, p.Kind == picker.PolicyRandom, p.Kind == picker.PolicyLeastRequest && p.Least.IgnoreWeights,
		p.Kind == picker.PolicyLeastLatency && p.Latency.IgnoreWeights:
		return "all equal"
	case p.Kind == picker.PolicyPickFirst:
		return "the one selected"
	case p.Kind == picker.PolicyClientWRR && reported < 2:
		return "all equal: too few reports"
	case p.Kind == picker.PolicyClientWRR && e.ReportedWeight() > 0:
		return "reported"
	case p.Kind == picker.PolicyClientWRR:
		return "mean of those reported"
	}
	return "EDS"
}

// Brief formats a duration with about three digits.
func Brief(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// SlowStart returns the factor of slow start in an endpoint's weight, or 0 outside of slow
// start.
func SlowStart(p *picker.Policy, e *picker.EndpointState, now int64) float64 {
	if p.SlowStart == nil || e.Connectivity != picker.Ready || p.Kind == picker.PolicyPickFirst {
		return 0
	}
	if f := p.SlowStart.Factor(time.Duration(now - e.StateSince)); f < 1 {
		return f
	}
	return 0
}
