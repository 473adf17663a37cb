// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Policy says how an endpoint of a priority is chosen. The zero value is the
// default of CDS: locality by weight, then EDF by endpoint weight (D2).
type Policy struct {
	Kind PolicyKind
	// Flat makes one layer of all endpoints of the priority. Otherwise a
	// locality is drawn by its weight first (xds_wrr_locality).
	Flat bool
	// Exactly the member that Kind names is set; nil where a kind has no
	// parameters.
	Ring   *RingPolicy
	Least  *LeastRequest
	WRR    *ClientWRR
	First  *PickFirst
	Custom *CustomPolicy
	// Subset is the size that random subsetting (A68) cuts the endpoints down
	// to before Kind applies; 0 is all of them.
	Subset uint32
	// SlowStart is Envoy's slow start window; nil is off.
	SlowStart *SlowStart
}

// PolicyKind enumerates the policies that the snapshot knows.
type PolicyKind uint8

// The endpoint-picking policies.
const (
	PolicyEDF          PolicyKind = iota // EDF by EDS endpoint weight (seed 002)
	PolicyRoundRobin                     // weights ignored
	PolicyRingHash                       // A42
	PolicyMaglev                         // Envoy's maglev
	PolicyLeastRequest                   // A48
	PolicyClientWRR                      // A58
	PolicyPickFirst                      // A62
	PolicyCustom                         // a balancer of grpc-go's registry (A52, D10)
)

// Hashes reports whether RPCs come to endpoints by their hash. Endpoints need not
// be connected then before they are asked for.
func (p *Policy) Hashes() bool { return p.Kind == PolicyRingHash || p.Kind == PolicyMaglev }

// CountsInFlight reports whether picks look at how many RPCs endpoints have in
// flight. The endpoints then have to count them: EndpointState.CountInFlight.
func (p *Policy) CountsInFlight() bool {
	switch p.Kind {
	case PolicyLeastRequest:
		return true
	case PolicyRingHash, PolicyMaglev:
		return p.Ring != nil && p.Ring.BalanceFactor > 0
	}
	return false
}

// check reports whether snapshots can do what the policy says.
func (p *Policy) check() error {
	missing := false
	switch p.Kind {
	case PolicyEDF, PolicyRoundRobin, PolicyClientWRR, PolicyPickFirst, PolicyCustom:
	case PolicyRingHash, PolicyMaglev:
		missing = p.Ring == nil
		if !missing && strings.HasSuffix(p.Ring.RequestHeader, "-bin") { // A76
			return fmt.Errorf("request header %q is binary", p.Ring.RequestHeader)
		}
	case PolicyLeastRequest:
		missing = p.Least == nil
	default:
		return fmt.Errorf("policy kind %d is not supported", p.Kind)
	}
	if missing {
		return fmt.Errorf("policy kind %d has no parameters", p.Kind)
	}
	if p.SlowStart != nil {
		return p.SlowStart.check()
	}
	return nil
}

// RingPolicy parametrises ring_hash (A42) and maglev.
type RingPolicy struct {
	MinSize, MaxSize uint64 // ring entries; for maglev MinSize is the table size
	XXH64            bool   // Envoy's hash and placement (D3); otherwise XXH3
	// RequestHeader names the header that is hashed instead of what the route's
	// hash policies say (A76); empty is none.
	RequestHeader string
	// BalanceFactor bounds the load of a host to this percentage of the
	// average; 0 is off.
	BalanceFactor uint32
}

// LeastRequest parametrises least_request (A48).
type LeastRequest struct {
	Choices uint32 // 2 … 10
}

// ClientWRR parametrises client_side_weighted_round_robin (A58, A114).
type ClientWRR struct {
	OutOfBand       bool
	OOBPeriod       time.Duration
	Blackout        time.Duration
	Expiration      time.Duration
	UpdatePeriod    time.Duration
	ErrorPenalty    float64
	UtilizationFrom []string // A114 metric names; empty is A58's rule
}

// PickFirst parametrises pick_first (A62).
type PickFirst struct {
	Shuffle bool
}

// CustomPolicy names a balancer of grpc-go's registry and its configuration.
type CustomPolicy struct {
	Name   string
	Config json.RawMessage
}

// SlowStart is Envoy's slow start: a new endpoint's weight grows from
// MinWeightPercent to 100 % over Window along (t/Window)^(1/Aggression).
type SlowStart struct {
	Window           time.Duration
	Aggression       float64
	MinWeightPercent float64
}

// OutlierDetection is A50's configuration, defaults filled in. A nil algorithm
// is off.
type OutlierDetection struct {
	Interval           time.Duration
	BaseEjectionTime   time.Duration
	MaxEjectionTime    time.Duration
	MaxEjectionPercent uint32
	SuccessRate        *SuccessRate
	FailurePercentage  *FailurePercentage
}

// SuccessRate ejects endpoints far below the mean success rate (A50).
type SuccessRate struct {
	StdevFactor   uint32 // in thousandths
	Enforcement   uint32 // percent
	MinimumHosts  uint32
	RequestVolume uint32
}

// FailurePercentage ejects endpoints above a failure percentage (A50).
type FailurePercentage struct {
	Threshold     uint32 // percent
	Enforcement   uint32 // percent
	MinimumHosts  uint32
	RequestVolume uint32
}
