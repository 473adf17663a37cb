// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math"
	"time"

	concurrencyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/adaptive_concurrency/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// An AdaptiveConcurrency is the configuration of an adaptive concurrency filter: clients limit
// their RPCs in flight by latency (Envoy's adaptive_concurrency with its gradient controller,
// the only controller). It is the Config of a picker.Filter, and the value type of override
// maps. Equal values are equivalent.
//
// Clients have no runtime: the default of enabled applies.
type AdaptiveConcurrency struct {
	Enabled bool
	// Percentile is the percentile of the sampled latencies that is used; a fraction from 0 to
	// 1.
	Percentile float64
	// Update is the sampling time for each change of the limit; above 0.
	Update   time.Duration
	Min, Max uint32 // of the limit, at least 1; Min takes precedence, and is the initial limit

	// FixedRTT is the ideal latency of RPCs. If it is 0, that is measured by the latencies of
	// Requests RPCs: initially, and then after Interval plus up to Jitter of it.
	FixedRTT time.Duration
	Interval time.Duration // at least 1 ms, unless FixedRTT is above 0
	Jitter   float64       // a fraction from 0 to 1
	Requests uint32        // at least 1
	Pins     bool          // the limit is Min during the measurement
	// Buffer is the fraction by which latencies may exceed the ideal without reducing the
	// limit, not counting the headroom.
	Buffer float64

	Code uint32 // the gRPC status of rejected RPCs
}

func newConcurrency(m *concurrencyv3.AdaptiveConcurrency, p *path) *AdaptiveConcurrency {
	a := &AdaptiveConcurrency{
		Enabled: m.GetEnabled().GetDefaultValue() == nil || m.GetEnabled().GetDefaultValue().GetValue(),
		Code:    concurrencyCode(m.GetConcurrencyLimitExceededStatus(), p.dot("concurrency_limit_exceeded_status")),
	}
	gradient := m.GetGradientControllerConfig()
	if gradient == nil {
		p.fail("must have gradient_controller_config")
		return a
	}
	p = p.dot("gradient_controller_config")
	a.Percentile = percentOr(gradient.GetSampleAggregatePercentile(), .5, p.dot("sample_aggregate_percentile"))
	limits, rtt := gradient.GetConcurrencyLimitParams(), gradient.GetMinRttCalcParams()
	if limits == nil {
		p.fail("must have concurrency_limit_params")
	}
	if rtt == nil {
		p.fail("must have min_rtt_calc_params")
	}
	a.limits(limits, p.dot("concurrency_limit_params"))
	a.minRTT(rtt, p.dot("min_rtt_calc_params"))
	if a.Pins = limits.GetMinConcurrencyLimit() == nil; !a.Pins { // min_concurrency is then ignored, as in Envoy
		a.Min = positiveOr(limits.GetMinConcurrencyLimit(), 0, p.dot("concurrency_limit_params").dot("min_concurrency_limit"))
	}
	return a
}

// limits converts concurrency_limit_params.
func (a *AdaptiveConcurrency) limits(m *concurrencyv3.GradientControllerConfig_ConcurrencyLimitCalculationParams, p *path) {
	if m == nil {
		return
	}
	a.Max = positiveOr(m.GetMaxConcurrencyLimit(), 1000, p.dot("max_concurrency_limit"))
	interval := p.dot("concurrency_update_interval")
	if a.Update = interval.duration(m.GetConcurrencyUpdateInterval()); a.Update < time.Millisecond && durationOK(m.GetConcurrencyUpdateInterval()) {
		interval.refuse(a.Update, "must be at least 1ms")
	}
}

// minRTT converts min_rtt_calc_params.
func (a *AdaptiveConcurrency) minRTT(m *concurrencyv3.GradientControllerConfig_MinimumRTTCalculationParams, p *path) {
	if m == nil {
		return
	}
	a.Requests = positiveOr(m.GetRequestCount(), 50, p.dot("request_count"))
	a.Min = positiveOr(m.GetMinConcurrency(), 3, p.dot("min_concurrency"))
	a.Jitter = percentOr(m.GetJitter(), .15, p.dot("jitter"))
	a.Buffer = .25
	if b := m.GetBuffer(); b != nil {
		// It is a percentage of the measured latency, and may exceed 100.
		if a.Buffer = b.GetValue() / 100; !(a.Buffer >= 0) || math.IsInf(a.Buffer, 0) {
			p.dot("buffer").refuse(b.GetValue(), "must be a finite number, at least 0")
		}
	}
	a.Interval = p.dot("interval").duration(m.GetInterval())
	a.FixedRTT = p.dot("fixed_value").duration(m.GetFixedValue())
	switch {
	case m.GetFixedValue() != nil && a.FixedRTT == 0 && durationOK(m.GetFixedValue()):
		p.dot("fixed_value").refuse(a.FixedRTT, "must be above 0")
	case m.GetFixedValue() != nil:
	case m.GetInterval() == nil:
		p.fail("must have interval or fixed_value")
	case a.Interval < time.Millisecond && durationOK(m.GetInterval()):
		p.dot("interval").refuse(a.Interval, "must be at least 1ms, unless there is a fixed_value")
	}
}

// concurrencyCode returns the status of rejected RPCs. As in Envoy, HTTP statuses that are not
// errors count as 503.
func concurrencyCode(m *typev3.HttpStatus, p *path) uint32 {
	http := uint32(m.GetCode())
	if http < 400 {
		http = 503
	}
	code, ok := AbortCode(http)
	if !ok {
		p.dot("code").refuse(http, "must be at most 599")
	}
	return code
}

// durationOK reports whether path.duration accepts a duration.
func durationOK(d *durationpb.Duration) bool { return d == nil || d.IsValid() && d.AsDuration() >= 0 }

// positiveOr returns a number, which must be above 0, or the default if it is unset.
func positiveOr(m *wrapperspb.UInt32Value, otherwise uint32, p *path) uint32 {
	if m == nil {
		return otherwise
	}
	if m.GetValue() == 0 {
		p.refuse(0, "must be above 0")
	}
	return m.GetValue()
}

// percentOr returns a percentage as a fraction, or the default if it is unset.
func percentOr(m *typev3.Percent, otherwise float64, p *path) float64 {
	if m == nil {
		return otherwise
	}
	return percent(m, p)
}
