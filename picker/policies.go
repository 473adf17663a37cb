// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"errors"
	"fmt"
	"strings"
)

// PolicyKind enumerates the policies that pick endpoints. Its Traits describe them.
type PolicyKind uint8

// The policies.
const (
	PolicyEDF          PolicyKind = iota // EDF by EDS endpoint weight (D2)
	PolicyRoundRobin                     // weights ignored
	PolicyRingHash                       // A42
	PolicyMaglev                         // Envoy's maglev
	PolicyLeastRequest                   // A48
	PolicyClientWRR                      // A58
	PolicyPickFirst                      // A62
	PolicyCustom                         // a balancer from grpc-go's registry (A52, D10)
	PolicyLeastLatency                   // of two endpoints the one with less latency, by Little's law
	PolicyPrequal                        // endpoints are probed for their load
	PolicyRandom                         // uniformly at random, weights ignored (Envoy's random)
)

// PolicyTraits are the properties of a kind of policy. All code that depends on the kind reads
// them, except picks, which depend on the rule of their group.
type PolicyTraits struct {
	// Names of the policy; "" where it lacks one.
	Name          string // in the status of channels
	Message       string // full name of its message in load_balancing_policy
	TypedStruct   string // with a configuration in JSON, in a TypedStruct (A52)
	ServiceConfig string // in service configs of channels without xDS

	OnDemand  bool // endpoints connect only when an RPC needs them (A61)
	Connects  bool // a balancer of the caller connects the endpoints
	Delegates bool // that balancer picks, too: see Snapshot.Cancel
	Reports   bool // endpoints report their weights: see EndpointState.SetWeight
	Probes    bool // endpoints are probed: see ProbeGroup
	Zones     bool // can be zone-aware
	SlowStart bool // can slow-start endpoints
	Stock     bool // google.golang.org/grpc/xds has it

	text    string
	detail  func(p *Policy) string // of the parameters, for explanations; or nil
	check   func(p *Policy) error  // of the parameters; or nil
	compile func(b *builder, g, before *group, in *groupInput, c *cluster, p *Policy) error
	hashes  bool
	times   bool
	counts  func(p *Policy) bool // whether RPCs in flight are compared; nil means no
	weights weightUse
	// unweighted changes a policy to its form without weights; nil without such a form. weighted reports
	// whether that is a change; nil means always.
	unweighted func(p *Policy)
	weighted   func(p *Policy) bool
}

// A weightUse is what a policy uses as the weights of endpoints.
type weightUse uint8

const (
	weightsEqual     weightUse = iota // endpoints are equal
	weightsScheduled                  // the configured ones, by a schedule, which can be changed
	weightsDrawn                      // the configured ones, by random draws
	weightsReported                   // those reported
	weightsPlaced                     // those of A113, by a ring or table
	weightsPassed                     // the caller's balancer gets them
)

// kinds has the traits of each kind. It is assigned in init because the compilers read them.
var kinds [PolicyRandom + 1]PolicyTraits

const messages = "envoy.extensions.load_balancing_policies."

func init() {
	kinds = [...]PolicyTraits{
		PolicyEDF: {
			Name: "edf", text: "weighted round robin", Message: messages + "round_robin.v3.RoundRobin",
			ServiceConfig: "xdslb_weighted_round_robin", Stock: true, Zones: true, SlowStart: true,
			compile: (*builder).sequence, weights: weightsScheduled,
			unweighted: func(p *Policy) { p.Kind = PolicyRoundRobin },
		},
		PolicyRoundRobin: {
			Name: "round_robin", text: "round robin", TypedStruct: "round_robin",
			Stock: true, Zones: true, SlowStart: true,
			compile: (*builder).sequence, weights: weightsEqual,
		},
		PolicyRingHash: {
			Name: "ring_hash", text: "ring_hash", Message: messages + "ring_hash.v3.RingHash",
			TypedStruct: "ring_hash_experimental", ServiceConfig: "xdslb_ring_hash", Stock: true,
			check: checkRing, detail: ringDetail, compile: (*builder).hashing,
			OnDemand: true, SlowStart: true, hashes: true, counts: boundsLoads, weights: weightsPlaced,
		},
		PolicyMaglev: {
			Name: "maglev", text: "maglev", Message: messages + "maglev.v3.Maglev", TypedStruct: "xdslb_maglev",
			check: checkRing, detail: ringDetail, compile: (*builder).hashing,
			OnDemand: true, SlowStart: true, hashes: true, counts: boundsLoads, weights: weightsPlaced,
		},
		PolicyLeastRequest: {
			Name: "least_request", text: "least_request", Message: messages + "least_request.v3.LeastRequest",
			TypedStruct: "least_request_experimental", ServiceConfig: "xdslb_least_request",
			Stock: true, Zones: true, SlowStart: true,
			check: func(p *Policy) error { return needs(p.Least != nil) },
			detail: func(p *Policy) string {
				if p.Least.Choices == 0 {
					return " of all endpoints"
				}
				return fmt.Sprintf(" of %d choices", p.Least.Choices)
			},
			compile: (*builder).leastRequest, counts: func(*Policy) bool { return true }, weights: weightsDrawn,
			unweighted: func(p *Policy) { p.Least = &LeastRequest{Choices: p.Least.Choices, IgnoreWeights: true} },
			weighted:   func(p *Policy) bool { return !p.Least.IgnoreWeights },
		},
		PolicyClientWRR: {
			Name: "client_wrr", text: "client_side_weighted_round_robin",
			Message:     messages + "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
			TypedStruct: "weighted_round_robin", Stock: true, Reports: true, Zones: true, SlowStart: true,
			check:   func(p *Policy) error { return needs(p.WRR != nil) },
			compile: (*builder).sequence, weights: weightsReported,
		},
		PolicyPickFirst: {
			Name: "pick_first", text: "pick_first", Message: messages + "pick_first.v3.PickFirst",
			TypedStruct: "pick_first", Stock: true, Connects: true,
			check:   func(p *Policy) error { return needs(p.First != nil) },
			compile: (*builder).pickFirst, weights: weightsPassed,
		},
		PolicyCustom: {
			Name: "custom", text: "custom", Stock: true, Connects: true, Delegates: true,
			check:   func(p *Policy) error { return needs(p.Custom != nil) },
			detail:  func(p *Policy) string { return fmt.Sprintf(" policy %q, which picks by itself", p.Custom.Name) },
			compile: (*builder).delegate, weights: weightsPassed,
		},
		PolicyLeastLatency: {
			Name: "least_latency", text: "least_latency", Message: messages + "peak_ewma.v3alpha.PeakEwma",
			TypedStruct: "xdslb_least_latency", ServiceConfig: "xdslb_least_latency", Zones: true, SlowStart: true,
			check: func(p *Policy) error {
				if p.Latency != nil && p.Latency.Decay <= 0 {
					return fmt.Errorf("decay of %v is not above 0", p.Latency.Decay)
				}
				return needs(p.Latency != nil)
			},
			detail:  func(p *Policy) string { return fmt.Sprintf(", decay %s", p.Latency.Decay) },
			compile: (*builder).leastLatency, times: true, weights: weightsDrawn,
			unweighted: func(p *Policy) { p.Latency = &LeastLatency{Decay: p.Latency.Decay, IgnoreWeights: true} },
			weighted:   func(p *Policy) bool { return !p.Latency.IgnoreWeights },
		},
		PolicyPrequal: {
			Name: "prequal", text: "prequal", TypedStruct: "xdslb_prequal", ServiceConfig: "xdslb_prequal",
			Probes: true, Zones: true, SlowStart: true,
			check: func(p *Policy) error {
				if p.Prequal == nil {
					return needs(false)
				}
				return p.Prequal.check()
			},
			detail: func(p *Policy) string {
				if n := p.Prequal.Synchronous; n > 0 {
					return fmt.Sprintf(", each RPC probes %d endpoints", n)
				}
				return ", by the results of earlier probes"
			},
			compile: (*builder).prequal, times: true, weights: weightsDrawn,
			unweighted: func(p *Policy) { q := *p.Prequal; q.IgnoreWeights = true; p.Prequal = &q },
			weighted:   func(p *Policy) bool { return !p.Prequal.IgnoreWeights },
		},
		PolicyRandom: {
			Name: "random", text: "random", Message: messages + "random.v3.Random", Zones: true, SlowStart: true,
			compile: (*builder).leastRequest, weights: weightsEqual,
		},
	}
}

// unknownPolicy has the traits of a kind that does not exist.
var unknownPolicy = PolicyTraits{Name: "unknown", text: "unknown"}

// Traits returns the properties of the kind, which must not be modified.
func (k PolicyKind) Traits() *PolicyTraits {
	if int(k) < len(kinds) {
		return &kinds[k]
	}
	return &unknownPolicy
}

var errNoParameters = errors.New("no parameters")

// needs returns an error if a policy lacks its parameters.
func needs(present bool) error {
	if present {
		return nil
	}
	return errNoParameters
}

func checkRing(p *Policy) error {
	if p.Ring != nil && strings.HasSuffix(p.Ring.RequestHeader, "-bin") { // A76
		return fmt.Errorf("request header %q is binary", p.Ring.RequestHeader)
	}
	return needs(p.Ring != nil)
}

func ringDetail(p *Policy) string {
	if !boundsLoads(p) {
		return ""
	}
	return fmt.Sprintf(" with bounded loads, %d %%", p.Ring.BalanceFactor)
}

// boundsLoads reports whether the policy limits the loads of endpoints.
func boundsLoads(p *Policy) bool { return p.Ring != nil && p.Ring.BalanceFactor > 0 }

// Check returns an error if the policy is invalid: it cannot be compiled.
func (p *Policy) Check() error {
	t := p.Kind.Traits()
	if t.compile == nil {
		return fmt.Errorf("policy kind %d is not supported", p.Kind)
	}
	if t.check != nil {
		if err := t.check(p); err == errNoParameters {
			return fmt.Errorf("policy %s has no parameters", t.Name)
		} else if err != nil {
			return fmt.Errorf("policy %s: %w", t.Name, err)
		}
	}
	if p.SlowStart != nil {
		if !t.SlowStart {
			return fmt.Errorf("slow start: not supported by policy %s", t.Name)
		}
		if err := p.SlowStart.check(); err != nil {
			return err
		}
	}
	if p.ZoneAware != nil {
		if !t.Zones {
			return fmt.Errorf("zone-aware routing: not supported by policy %s", t.Name)
		}
		return p.ZoneAware.check()
	}
	return nil
}

// Text describes the kind and the parameters of a valid policy.
func (p *Policy) Text() string {
	t := p.Kind.Traits()
	if t.detail == nil {
		return t.text
	}
	return t.text + t.detail(p)
}

// Hashes reports whether the policy picks by the hash of the RPC. Endpoints then connect on
// demand, when an RPC needs them (A61).
func (p *Policy) Hashes() bool { return p.Kind.Traits().hashes }

// CountsInFlight reports whether picks compare the RPCs in flight of endpoints. Endpoints must
// then count them: see NewBinding.
func (p *Policy) CountsInFlight() bool {
	t := p.Kind.Traits()
	return t.counts != nil && t.counts(p)
}

// TimesRPCs reports whether picks compare the latencies of endpoints. Endpoints must then time
// their RPCs, which also counts the RPCs in flight: see NewTimedBinding.
func (p *Policy) TimesRPCs() bool { return p.Kind.Traits().times }

// Unweighted returns the policy in the form that ignores the configured weights of endpoints. ok is
// false if it has no such form, or if it is the same.
func (p *Policy) Unweighted() (unweighted Policy, ok bool) {
	t := p.Kind.Traits()
	if t.unweighted == nil || t.weighted != nil && !t.weighted(p) {
		return *p, false
	}
	unweighted = *p
	t.unweighted(&unweighted)
	return unweighted, true
}

// EqualWeights reports whether all endpoints have the same weight, whatever is configured.
func (p *Policy) EqualWeights() bool {
	t := p.Kind.Traits()
	return t.weights == weightsEqual || t.weighted != nil && !t.weighted(p)
}
