// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/picker"
)

const (
	defaultChoices = 2
	maxChoices     = 10 // T-SEC-2

	defaultAggression       = 1.0
	defaultMinWeightPercent = 10.0
)

// endpointPolicy is implemented by the messages of policies that pick among endpoints.
type endpointPolicy interface {
	proto.Message
	GetSlowStartConfig() *commonv3.SlowStartConfig
	GetLocalityLbConfig() *commonv3.LocalityLbConfig
}

// decodeEndpointPolicy decodes m, and returns a policy with the common settings of its kinds.
func decodeEndpointPolicy(config []byte, m endpointPolicy) (picker.Policy, error) {
	if err := decode(config, m); err != nil {
		return picker.Policy{}, err
	}
	return commonSettings(m)
}

func commonSettings(m endpointPolicy) (picker.Policy, error) {
	start, err := slowStart(m.GetSlowStartConfig())
	if err != nil {
		return picker.Policy{}, err
	}
	zones, err := zoneAware(m.GetLocalityLbConfig())
	return picker.Policy{SlowStart: start, ZoneAware: zones}, err
}

// roundRobin converts A52-RR-1's policy, which is EDF by endpoint weight (D2): with equal
// weights, round robin.
func roundRobin(config []byte, _ Nested) (picker.Policy, error) {
	return decodeEndpointPolicy(config, new(roundrobinv3.RoundRobin))
}

// leastRequest converts A48's policy (A52-LR-1).
func leastRequest(config []byte, _ Nested) (picker.Policy, error) {
	var m leastrequestv3.LeastRequest
	common, err := decodeEndpointPolicy(config, &m)
	if err != nil {
		return common, err
	}
	policy, err := leastOf(m.GetChoiceCount(), common.SlowStart)
	if err == nil && m.GetSelectionMethod() == leastrequestv3.LeastRequest_FULL_SCAN {
		policy.Least.Choices = 0
	}
	policy.ZoneAware = common.ZoneAware
	return policy, err
}

// leastOf implements A48's rule for choice_count: 2 if unset, smaller values are an error,
// values above 10 are capped at 10.
func leastOf(choiceCount *wrapperspb.UInt32Value, start *picker.SlowStart) (picker.Policy, error) {
	choices := uint32(defaultChoices)
	if choiceCount != nil {
		choices = choiceCount.GetValue()
	}
	if choices < 2 {
		return picker.Policy{}, fmt.Errorf("choice_count %d is below 2", choices)
	}
	return picker.Policy{Least: &picker.LeastRequest{Choices: min(choices, maxChoices)}, SlowStart: start}, nil
}

// random converts Envoy's random policy, which ignores the weights of endpoints.
func random(config []byte, _ Nested) (picker.Policy, error) {
	var m randomv3.Random
	if err := decode(config, &m); err != nil {
		return picker.Policy{}, err
	}
	zones, err := zoneAware(m.GetLocalityLbConfig())
	return picker.Policy{ZoneAware: zones}, err
}

// pickFirst converts A62's policy.
func pickFirst(config []byte, _ Nested) (picker.Policy, error) {
	var m pickfirstv3.PickFirst
	if err := decode(config, &m); err != nil {
		return picker.Policy{}, err
	}
	return picker.Policy{First: &picker.PickFirst{Shuffle: m.GetShuffleAddressList()}}, nil
}

// slowStarter is implemented by both messages that contain slow start. Their getters accept a
// nil receiver.
type slowStarter interface {
	GetSlowStartWindow() *durationpb.Duration
	GetAggression() *corev3.RuntimeDouble
	GetMinWeightPercent() *typev3.Percent
}

// slowStart converts Envoy's slow start. Without a window it is off, regardless of the other
// fields. The aggression, which Envoy can override at run time, has its default.
func slowStart(m slowStarter) (*picker.SlowStart, error) {
	window, err := period("slow_start_config.slow_start_window", m.GetSlowStartWindow(), 0)
	if err != nil {
		return nil, err
	}
	aggression, percent := defaultAggression, defaultMinWeightPercent
	if v := m.GetAggression(); v != nil {
		aggression = v.GetDefaultValue()
	}
	if v := m.GetMinWeightPercent(); v != nil {
		percent = v.GetValue()
	}
	switch { // NaN must fail the checks
	case !(aggression > 0) || math.IsInf(aggression, 1):
		return nil, fmt.Errorf("slow_start_config.aggression %v is not positive and finite", aggression)
	case !(percent >= 0 && percent <= 100):
		return nil, fmt.Errorf("slow_start_config.min_weight_percent %v is not within 0 to 100", percent)
	case window == 0:
		return nil, nil
	}
	return &picker.SlowStart{Window: window, Aggression: aggression, MinWeightPercent: percent}, nil
}

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
	return picker.Policy{WRR: &wrr, SlowStart: start}, nil
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

const defaultMinClusterSize = 6 // Envoy's

// zoneAware converts the zone-aware routing of locality_lb_config. Its
// locality_weighted_lb_config is ignored, since wrr_locality replaces it (A52).
//
// fail_traffic_on_panic has no effect: gRPC has no panic mode, and RPCs fail if no endpoint is
// reachable. force_locality_direct_routing is the older form of force_local_zone with one
// endpoint, which takes precedence, as in Envoy.
func zoneAware(m *commonv3.LocalityLbConfig) (*picker.ZoneAware, error) {
	c := m.GetZoneAwareLbConfig()
	if c == nil {
		return nil, nil
	}
	zones, err := zonesOf(c.GetRoutingEnabled(), c.GetMinClusterSize())
	if err == nil {
		switch c.GetLocalityBasis() {
		case commonv3.LocalityLbConfig_ZoneAwareLbConfig_HEALTHY_HOSTS_NUM:
		case commonv3.LocalityLbConfig_ZoneAwareLbConfig_HEALTHY_HOSTS_WEIGHT:
			zones.ByWeight = true
		default:
			err = fmt.Errorf("locality_basis %v is not supported", c.GetLocalityBasis())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("locality_lb_config.zone_aware_lb_config.%w", err)
	}
	if force := c.GetForceLocalZone(); force != nil {
		zones.ForceLocal = 1
		if size := force.GetMinSize(); size != nil {
			zones.ForceLocal = max(size.GetValue(), 1) // a zone without endpoints gets no RPCs
		}
	} else if c.GetForceLocalityDirectRouting() {
		zones.ForceLocal = 1
	}
	return zones, nil
}

// legacyZoneAware converts common_lb_config, which has fewer fields.
func legacyZoneAware(m *clusterv3.Cluster_CommonLbConfig) (*picker.ZoneAware, error) {
	c := m.GetZoneAwareLbConfig()
	if c == nil {
		return nil, nil
	}
	zones, err := zonesOf(c.GetRoutingEnabled(), c.GetMinClusterSize())
	if err != nil {
		return nil, fmt.Errorf("zone_aware_lb_config.%w", err)
	}
	return zones, nil
}

func zonesOf(enabled *typev3.Percent, minSize *wrapperspb.UInt64Value) (*picker.ZoneAware, error) {
	zones := &picker.ZoneAware{Enabled: 1, MinEndpoints: defaultMinClusterSize}
	if enabled != nil {
		percent := enabled.GetValue()
		if !(percent >= 0 && percent <= 100) { // NaN too
			return nil, fmt.Errorf("routing_enabled %v is not within 0 to 100", percent)
		}
		zones.Enabled = percent / 100
	}
	if minSize != nil {
		zones.MinEndpoints = minSize.GetValue()
	}
	return zones, nil
}

const (
	defaultDecay = 10 * time.Second // as in Finagle and Envoy
	minDecay     = time.Millisecond
)

// peakEWMA converts Envoy's contrib policy PeakEwma to least latency. The message is read from
// the wire, since its Go type is in a separate module that is not needed otherwise. Only
// decay_time is used. The other fields are for sharing measurements between Envoy's workers
// (aggregation_interval, max_samples_per_host), and for the value of unmeasured hosts
// (default_rtt, penalty_value), which here is the mean of the other hosts.
func peakEWMA(config []byte, _ Nested) (picker.Policy, error) {
	var decay *durationpb.Duration
	for len(config) > 0 {
		number, kind, n := protowire.ConsumeTag(config)
		if n < 0 {
			return picker.Policy{}, errPeakEWMA
		}
		config = config[n:]
		if n = protowire.ConsumeFieldValue(number, kind, config); n < 0 {
			return picker.Policy{}, errPeakEWMA
		}
		if number == 1 {
			value, _ := protowire.ConsumeBytes(config[:n])
			if decay == nil {
				decay = new(durationpb.Duration)
			}
			if kind != protowire.BytesType || (proto.UnmarshalOptions{Merge: true, DiscardUnknown: true}).Unmarshal(value, decay) != nil {
				return picker.Policy{}, errPeakEWMA
			}
		}
		config = config[n:]
	}
	d, err := period("decay_time", decay, defaultDecay)
	if err != nil {
		return picker.Policy{}, err
	}
	return latencyOf("decay_time", d)
}

var errPeakEWMA = errors.New("value is not a valid envoy.extensions.load_balancing_policies.peak_ewma.v3alpha.PeakEwma message")

// LeastLatency converts the JSON configuration of the policy xdslb_least_latency: {"decayTime":
// "10s"}, and the common fields slow_start_config and locality_lb_config, which are Envoy's messages.
// Unknown fields are errors.
func LeastLatency(config []byte) (picker.Policy, error) {
	return withCommonFields(picker.PolicyLeastLatency, leastLatencyJSON)(config, nil)
}

func leastLatencyJSON(config []byte, _ Nested) (picker.Policy, error) {
	c := struct{ DecayTime string }{defaultDecay.String()}
	if err := DecodeFields(config, &c); err != nil {
		if mistyped := (*json.UnmarshalTypeError)(nil); errors.As(err, &mistyped) {
			err = errors.New("decayTime is not a string such as \"10s\"")
		}
		return picker.Policy{}, err
	}
	d, err := time.ParseDuration(c.DecayTime)
	if err != nil {
		return picker.Policy{}, fmt.Errorf("decayTime %.100q is not a duration such as 10s", c.DecayTime)
	}
	return latencyOf("decayTime", d)
}

func latencyOf(field string, decay time.Duration) (picker.Policy, error) {
	if decay < minDecay {
		return picker.Policy{}, fmt.Errorf("%s %v is below %v", field, decay, minDecay)
	}
	return picker.Policy{Kind: picker.PolicyLeastLatency, Flat: true, Latency: &picker.LeastLatency{Decay: decay}}, nil
}
