// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// endpointWeights returns the weights of the endpoints of in, 0 for endpoints that are not
// READY: configured, equal or reported weights, depending on the policy, reduced during slow
// start. The next call reuses the memory.
func (b *builder) endpointWeights(in *groupInput, policy *Policy) []uint32 {
	weights, equal := slices.Grow(b.weights[:0], len(in.states)), policy.EqualWeights()
	for i := range in.localities {
		for _, e := range in.localities[i].Endpoints.All() {
			w := e.Weight
			if equal {
				w = 1
			}
			if in.states[len(weights)] != Ready {
				w = 0
			}
			weights = append(weights, w)
		}
	}
	b.weights = weights
	b.scaled = scaleDown(weights)
	if policy.Kind.Traits().Reports {
		reportedWeights(weights, in)
	}
	if policy.SlowStart != nil && policy.SlowStart.apply(weights, in, b.env.Now) {
		b.inSlowStart = true
	}
	return weights
}

// scaleDown divides weights whose sum exceeds the limit of a schedule, and reports whether it
// did. Each locality keeps within the limit (T-EDS-3), but a flat group of several may not, nor
// may endpoints that are not from EDS. Weights are rounded up to at least 1, which adds less
// than 1 to each, and the divisor allows for that. O(n).
func scaleDown(weights []uint32) (scaled bool) {
	sum := uint64(0)
	for _, w := range weights {
		sum += uint64(w)
	}
	if sum <= math.MaxUint32 {
		return false
	}
	divisor := sum/(math.MaxUint32-uint64(len(weights))) + 1
	for i, w := range weights {
		if w > 0 {
			weights[i] = uint32(max(uint64(w)/divisor, 1))
		}
	}
	return true
}

// SetWeight sets the weight computed from the endpoint's load reports, for client-side WRR
// (A58). Only its ratio to the weights of other endpoints matters. 0 means that it is unknown:
// not yet or no longer (A58's blackout and expiration periods). An invalid weight counts as
// unknown: negative, infinite, or not a number (T-WRR-4). Like the exported fields it must not
// be set while a Build with the endpoint runs.
//
// The weight takes effect with the next Build of the cluster. The caller requests one every
// update period (A58) by changing the cluster's Version. The sequence keeps its position, so
// rebuilding favors no endpoint (T-WRR-2).
func (e *EndpointState) SetWeight(w float64) {
	f := float32(w)
	if !(f > 0 && f <= math.MaxFloat32) {
		f = 0
	}
	e.weight = f
}

func (e *EndpointState) reportedWeight() float64 { return float64(e.weight) }

// Bounds of reported weights relative to their mean, as in gRPC C++ (T-WRR-1). Without them one
// endpoint could get all RPCs.
const (
	minReported = .01
	maxReported = 10
	meanWeight  = 256 // the integer for the mean weight
)

// reportedWeights sets the weights of the READY endpoints of in to the reported ones, as
// integers. An unknown weight counts as the mean of the known ones. If fewer than two are
// known, all are equal (A58).
//
// Integers with a mean of 256 are off by at most 1/512 of an average weight. Reports are no
// more accurate than that, and the period of the sequence remains short.
func reportedWeights(weights []uint32, in *groupInput) {
	sum, known := 0., 0
	for i := range in.states {
		if w := in.endpoints.State(i).reportedWeight(); w > 0 && in.states[i] == Ready {
			sum, known = sum+w, known+1
		}
	}
	mean := sum / float64(known)
	for i := range in.states {
		w := in.endpoints.State(i).reportedWeight()
		switch {
		case in.states[i] != Ready:
			weights[i] = 0
		case known < 2:
			weights[i] = 1
		case w == 0:
			weights[i] = meanWeight
		default:
			weights[i] = uint32(math.Round(min(max(w/mean, minReported), maxReported) * meanWeight))
		}
	}
}

// check returns an error if the parameters are invalid. NaN fails the comparisons.
func (s *SlowStart) check() error {
	switch {
	case s.Window <= 0:
		return fmt.Errorf("slow start: window %v is not positive", s.Window)
	case !(s.Aggression > 0):
		return fmt.Errorf("slow start: aggression %v is not positive", s.Aggression)
	case !(s.MinWeightPercent >= 0 && s.MinWeightPercent <= 100):
		return fmt.Errorf("slow start: minimum weight %v %% is not within 0 to 100 %%", s.MinWeightPercent)
	}
	return nil
}

// factor returns the factor, at most 1, for the weight of an endpoint that has been READY for
// age, by Envoy's curve.
func (s *SlowStart) factor(age time.Duration) float64 {
	if age >= s.Window {
		return 1
	}
	t := float64(max(age, time.Millisecond)) / float64(s.Window)
	return min(max(math.Pow(t, 1/s.Aggression), s.MinWeightPercent/100), 1)
}

// apply reduces the weights of the endpoints of in that are within the window, and reports
// whether there are any. It may first multiply all weights, which preserves their ratios, to
// make room below the smallest one: with a smallest weight of about 256, a tenth of it is off
// by 2 % at most. O(endpoints).
func (s *SlowStart) apply(weights []uint32, in *groupInput, now int64) (inWindow bool) {
	lightest, sum := uint64(math.MaxUint32), uint64(0)
	for i, w := range weights {
		if w > 0 {
			inWindow = inWindow || age(in.endpoints.State(i), now) < s.Window
			lightest, sum = min(lightest, uint64(w)), sum+uint64(w)
		}
	}
	if !inWindow {
		return false
	}
	scale := max(min((255+lightest)/lightest, math.MaxUint32/sum), 1)
	for i, w := range weights {
		if w > 0 {
			scaled := uint64(w) * scale
			if a := age(in.endpoints.State(i), now); a < s.Window {
				scaled = max(uint64(math.Round(float64(scaled)*s.factor(a))), 1)
			}
			weights[i] = uint32(scaled)
		}
	}
	return true
}

// age returns how long e has been READY.
func age(e *EndpointState, now int64) time.Duration {
	return time.Duration(now - e.StateSince)
}
