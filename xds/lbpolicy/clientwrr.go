// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"fmt"
	"math"
	"time"

	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/picker"
)

// A58's defaults, and its minimum update period.
const (
	defaultOOBPeriod    = 10 * time.Second
	defaultBlackout     = 10 * time.Second
	defaultExpiration   = 3 * time.Minute
	defaultUpdatePeriod = time.Second
	minUpdatePeriod     = 100 * time.Millisecond
	defaultPenalty      = 1.0
)

// maxUtilizationNames is the maximum number of metric names of A114. All of them are looked up at
// the end of each RPC and in each out-of-band report.
const maxUtilizationNames = 100

// clientWRR converts A58's policy with A114's metric names. Only their number is limited: a name that
// no load report contains has no effect.
//
// Negative periods are rejected. A58 does not mention them, and with them weights would always
// or never be valid.
func clientWRR(config []byte, _ Nested) (picker.Policy, error) {
	var m wrrv3.ClientSideWeightedRoundRobin
	if err := decode(config, &m); err != nil {
		return picker.Policy{}, err
	}
	if n := len(m.GetMetricNamesForComputingUtilization()); n > maxUtilizationNames {
		return picker.Policy{}, fmt.Errorf("metric_names_for_computing_utilization has %d names, more than %d", n, maxUtilizationNames)
	}
	wrr := picker.ClientWRR{
		OutOfBand:       m.GetEnableOobLoadReport().GetValue(),
		ErrorPenalty:    defaultPenalty,
		UtilizationFrom: m.GetMetricNamesForComputingUtilization(),
	}
	for _, p := range []struct {
		field string
		value *durationpb.Duration
		unset time.Duration
		to    *time.Duration
	}{
		{"oob_reporting_period", m.GetOobReportingPeriod(), defaultOOBPeriod, &wrr.OOBPeriod},
		{"blackout_period", m.GetBlackoutPeriod(), defaultBlackout, &wrr.Blackout},
		{"weight_expiration_period", m.GetWeightExpirationPeriod(), defaultExpiration, &wrr.Expiration},
		{"weight_update_period", m.GetWeightUpdatePeriod(), defaultUpdatePeriod, &wrr.UpdatePeriod},
	} {
		var err error
		if *p.to, err = period(p.field, p.value, p.unset); err != nil {
			return picker.Policy{}, err
		}
	}
	wrr.UpdatePeriod = max(wrr.UpdatePeriod, minUpdatePeriod)
	if !wrr.OutOfBand {
		wrr.OOBPeriod = 0 // unused, so that equal policies compare equal
	}
	if v := m.GetErrorUtilizationPenalty(); v != nil {
		wrr.ErrorPenalty = float64(v.GetValue())
	}
	if !(wrr.ErrorPenalty >= 0) || math.IsInf(wrr.ErrorPenalty, 1) { // NaN too (T-WRR-4)
		return picker.Policy{}, fmt.Errorf("error_utilization_penalty %v is not finite and non-negative", wrr.ErrorPenalty)
	}
	start, err := slowStart(m.GetSlowStartConfig())
	if err != nil {
		return picker.Policy{}, err
	}
	return picker.Policy{Kind: picker.PolicyClientWRR, Flat: true, WRR: &wrr, SlowStart: start}, nil
}

// period returns the duration v, or unset if v is nil. Durations beyond time.Duration's 292
// years are capped.
func period(field string, v *durationpb.Duration, unset time.Duration) (time.Duration, error) {
	if v == nil {
		return unset, nil
	}
	if !v.IsValid() {
		return 0, fmt.Errorf("%s of %d seconds and %d nanoseconds is not a valid duration", field, v.GetSeconds(), v.GetNanos())
	}
	if d := v.AsDuration(); d >= 0 {
		return d, nil
	}
	return 0, fmt.Errorf("%s %v is negative", field, v.AsDuration())
}
