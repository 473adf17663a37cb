// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"fmt"
	"math"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
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
	start, err := slowStart(m.GetSlowStartConfig())
	if err != nil {
		return picker.Policy{}, err
	}
	zones, err := zoneAware(m.GetLocalityLbConfig())
	return picker.Policy{Flat: true, SlowStart: start, ZoneAware: zones}, err
}

// roundRobin converts A52-RR-1's policy, which is EDF by endpoint weight (D2): with equal
// weights, round robin.
func roundRobin(config []byte, _ Nested) (picker.Policy, error) {
	policy, err := decodeEndpointPolicy(config, new(roundrobinv3.RoundRobin))
	policy.Kind = picker.PolicyEDF
	return policy, err
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
	return picker.Policy{
		Kind:      picker.PolicyLeastRequest,
		Flat:      true,
		Least:     &picker.LeastRequest{Choices: min(choices, maxChoices)},
		SlowStart: start,
	}, nil
}

// random converts Envoy's random policy, which ignores the weights of endpoints.
func random(config []byte, _ Nested) (picker.Policy, error) {
	var m randomv3.Random
	if err := decode(config, &m); err != nil {
		return picker.Policy{}, err
	}
	zones, err := zoneAware(m.GetLocalityLbConfig())
	return picker.Policy{Kind: picker.PolicyRandom, Flat: true, ZoneAware: zones}, err
}

// pickFirst converts A62's policy.
func pickFirst(config []byte, _ Nested) (picker.Policy, error) {
	var m pickfirstv3.PickFirst
	if err := decode(config, &m); err != nil {
		return picker.Policy{}, err
	}
	return picker.Policy{
		Kind:  picker.PolicyPickFirst,
		Flat:  true,
		First: &picker.PickFirst{Shuffle: m.GetShuffleAddressList()},
	}, nil
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
