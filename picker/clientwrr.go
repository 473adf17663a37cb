// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "math"

// PolicyClientWRR (A58) is a sequence like that of PolicyEDF, of weights that
// endpoints report themselves. Whoever receives the reports turns them into
// weights, with SetWeight, and asks for a build once in a while (A58's update
// period) by changing the cluster's Version. The sequence keeps its place, so
// that no rebuild favours whoever comes first in it (T-WRR-2).

// SetWeight sets the endpoint's own weight, of which only the ratio to those of
// others matters; 0 is for not known, be it not yet or no longer (A58's blackout
// and expiration periods), and so is what cannot be a weight: negative, infinite, or
// not a number (T-WRR-4). The next build of a cluster whose policy is
// PolicyClientWRR reads it. Any number of goroutines may call it.
func (e *EndpointState) SetWeight(w float64) {
	f := float32(w)
	if !(f > 0 && f <= math.MaxFloat32) {
		f = 0
	}
	e.weight.Store(math.Float32bits(f))
}

func (e *EndpointState) ownWeight() float64 {
	return float64(math.Float32frombits(e.weight.Load()))
}

// Bounds of own weights, relative to their mean: those of gRPC C++ (T-WRR-1).
// Without them one endpoint could claim all RPCs, or be forgotten.
const (
	leastOwn  = .01
	mostOwn   = 10
	meanUnits = 256 // integer weights have this mean
)

// ownWeights sets the weights of p's READY endpoints to their own, as integers. One
// that is not known is their mean, and if fewer than two are known all are equal
// (A58). Integers with a mean of 256 are off by 1/512 of a weight that is average,
// for which a period of the sequence needs no more than 256 entries for each
// endpoint; reports are not that exact.
func ownWeights(weights []uint32, p *pool) {
	sum, known := 0., 0
	for i, e := range p.endpoints {
		if w := e.ownWeight(); w > 0 && p.states[i] == Ready {
			sum, known = sum+w, known+1
		}
	}
	mean := sum / float64(known)
	for i, e := range p.endpoints {
		w := e.ownWeight()
		switch {
		case p.states[i] != Ready:
			weights[i] = 0
		case known < 2:
			weights[i] = 1
		case w == 0:
			weights[i] = meanUnits
		default:
			weights[i] = uint32(math.Round(min(max(w/mean, leastOwn), mostOwn) * meanUnits))
		}
	}
}
