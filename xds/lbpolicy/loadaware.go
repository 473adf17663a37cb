// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"errors"
	"fmt"
	"time"

	loadawarev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/load_aware_locality/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/picker"
)

// Envoy's defaults.
const (
	defaultSmoothing = 5 * time.Second
	defaultThreshold = 0.1
	defaultProbe     = 0.03
)

// loadAware converts Envoy's load_aware_locality. Like wrr_locality it chooses a locality, and
// leaves the endpoints of the locality to the child policy. A nested policy of this kind has no
// effect.
//
// The limits are those of the message. Out-of-band reports need connections that the snapshot
// picks, so they are rejected for policies that pick by themselves.
func loadAware(config []byte, nested Nested) (picker.Policy, error) {
	var m loadawarev3.LoadAwareLocality
	if err := decode(config, &m); err != nil {
		return picker.Policy{}, err
	}
	if m.GetEndpointPickingPolicy() == nil {
		return picker.Policy{}, errors.New("endpoint_picking_policy is not set")
	}
	l, err := loadAwareOf(&m)
	if err != nil {
		return picker.Policy{}, err
	}
	policy, err := nested(m.GetEndpointPickingPolicy())
	switch {
	case err != nil:
		return picker.Policy{}, fmt.Errorf("endpoint_picking_policy.%w", err)
	case policy.Subset != 0:
		return picker.Policy{}, errors.New("endpoint_picking_policy: random_subsetting inside load_aware_locality is not supported, only around it")
	case l.OutOfBand && (policy.Kind == picker.PolicyPickFirst || policy.Kind == picker.PolicyCustom):
		return picker.Policy{}, errors.New("enable_oob_load_report is not supported with an endpoint_picking_policy that picks by itself: pick_first or a custom one")
	}
	policy.Flat, policy.ZoneAware, policy.LoadAware = false, nil, l
	return policy, nil
}

func loadAwareOf(m *loadawarev3.LoadAwareLocality) (*picker.LoadAware, error) {
	l := &picker.LoadAware{
		OutOfBand:       m.GetEnableOobLoadReport().GetValue(),
		UtilizationFrom: m.GetMetricNamesForComputingUtilization(),
		Threshold:       defaultThreshold,
		Probe:           defaultProbe,
	}
	for _, p := range []struct {
		field string
		value *durationpb.Duration
		unset time.Duration
		least time.Duration
		to    *time.Duration
	}{
		{"weight_update_period", m.GetWeightUpdatePeriod(), defaultUpdatePeriod, minUpdatePeriod, &l.UpdatePeriod},
		{"smoothing_time_constant", m.GetSmoothingTimeConstant(), defaultSmoothing, 1, &l.Smoothing},
		{"weight_expiration_period", m.GetWeightExpirationPeriod(), defaultExpiration, 0, &l.Expiration},
		{"oob_reporting_period", m.GetOobReportingPeriod(), defaultOOBPeriod, 0, &l.OOBPeriod},
	} {
		var err error
		if *p.to, err = period(p.field, p.value, p.unset); err != nil {
			return nil, err
		}
		if *p.to < p.least {
			return nil, fmt.Errorf("%s %v is less than %v", p.field, *p.to, p.least)
		}
	}
	if !l.OutOfBand {
		l.OOBPeriod = 0 // unused, so that equal policies compare equal
	}
	if v := m.GetUtilizationVarianceThreshold(); v != nil {
		l.Threshold = v.GetValue()
	}
	if v := m.GetRemoteProbeFraction(); v != nil {
		l.Probe = v.GetValue()
	}
	switch { // NaN must fail the checks
	case !(l.Threshold >= 0 && l.Threshold <= 1):
		return nil, fmt.Errorf("utilization_variance_threshold %v is not within 0 to 1", l.Threshold)
	case !(l.Probe >= 0 && l.Probe < 1):
		return nil, fmt.Errorf("remote_probe_fraction %v is not at least 0 and below 1", l.Probe)
	}
	return l, nil
}
