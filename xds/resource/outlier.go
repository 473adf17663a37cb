// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/picker"
)

// outlierDetection converts an outlier detection and adds the defaults (A50). The success rate
// algorithm is on unless disabled, the failure percentage algorithm is off unless enabled. Envoy's
// detectors of consecutive failures, which A50 ignores, are on if their number of failures is set:
// Envoy's default of 5 does not apply.
func outlierDetection(m *clusterv3.OutlierDetection, p *path) *picker.OutlierDetection {
	if m == nil {
		return nil
	}
	number := func(v *wrapperspb.UInt32Value, otherwise uint32) uint32 {
		if v == nil {
			return otherwise
		}
		return v.GetValue()
	}
	percent := func(v *wrapperspb.UInt32Value, otherwise uint32, field string) uint32 {
		n := number(v, otherwise)
		p.dot(field).atMost(n, 100)
		return n
	}
	span := func(v *durationpb.Duration, otherwise time.Duration, field string) time.Duration {
		if v == nil {
			return otherwise
		}
		return p.dot(field).duration(v)
	}
	o := &picker.OutlierDetection{
		Interval:           span(m.GetInterval(), 10*time.Second, "interval"),
		BaseEjectionTime:   span(m.GetBaseEjectionTime(), 30*time.Second, "base_ejection_time"),
		MaxEjectionPercent: percent(m.GetMaxEjectionPercent(), 10, "max_ejection_percent"),
	}
	o.MaxEjectionTime = span(m.GetMaxEjectionTime(), max(300*time.Second, o.BaseEjectionTime), "max_ejection_time")

	if n := percent(m.GetEnforcingSuccessRate(), 100, "enforcing_success_rate"); n != 0 {
		o.SuccessRate = &picker.SuccessRate{
			StdevFactor:   number(m.GetSuccessRateStdevFactor(), 1900),
			Enforcement:   n,
			MinimumHosts:  number(m.GetSuccessRateMinimumHosts(), 5),
			RequestVolume: number(m.GetSuccessRateRequestVolume(), 100),
		}
	}
	threshold := percent(m.GetFailurePercentageThreshold(), 85, "failure_percentage_threshold")
	if n := percent(m.GetEnforcingFailurePercentage(), 0, "enforcing_failure_percentage"); n != 0 {
		o.FailurePercentage = &picker.FailurePercentage{
			Threshold:     threshold,
			Enforcement:   n,
			MinimumHosts:  number(m.GetFailurePercentageMinimumHosts(), 5),
			RequestVolume: number(m.GetFailurePercentageRequestVolume(), 50),
		}
	}
	consecutive := func(failures *wrapperspb.UInt32Value, enforcement *wrapperspb.UInt32Value, otherwise uint32, field string) *picker.Consecutive {
		if failures.GetValue() == 0 {
			return nil
		}
		if n := percent(enforcement, otherwise, field); n != 0 {
			return &picker.Consecutive{Failures: failures.GetValue(), Enforcement: n}
		}
		return nil
	}
	o.Consecutive5xx = consecutive(m.GetConsecutive_5Xx(), m.GetEnforcingConsecutive_5Xx(), 100, "enforcing_consecutive_5xx")
	o.ConsecutiveGateway = consecutive(m.GetConsecutiveGatewayFailure(), m.GetEnforcingConsecutiveGatewayFailure(), 0, "enforcing_consecutive_gateway_failure")
	if o.SplitLocalOrigin = m.GetSplitExternalLocalOriginErrors(); o.SplitLocalOrigin {
		o.ConsecutiveLocalOrigin = consecutive(m.GetConsecutiveLocalOriginFailure(), m.GetEnforcingConsecutiveLocalOriginFailure(), 100, "enforcing_consecutive_local_origin_failure")
	}
	return o
}
