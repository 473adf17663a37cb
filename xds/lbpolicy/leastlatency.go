// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/picker"
)

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
// "10s"}. Unknown fields are errors.
func LeastLatency(config []byte) (picker.Policy, error) {
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

func leastLatencyJSON(config []byte, _ Nested) (picker.Policy, error) { return LeastLatency(config) }

func latencyOf(field string, decay time.Duration) (picker.Policy, error) {
	if decay < minDecay {
		return picker.Policy{}, fmt.Errorf("%s %v is below %v", field, decay, minDecay)
	}
	return picker.Policy{Kind: picker.PolicyLeastLatency, Flat: true, Latency: &picker.LeastLatency{Decay: decay}}, nil
}
