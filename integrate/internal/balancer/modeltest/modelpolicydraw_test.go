// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// This file draws LB policies.

// randomPolicy draws any policy.
func randomPolicy(rng *rand.Rand) picker.Policy {
	p := picker.Policy{Flat: rng.IntN(2) == 0}
	custom := func(name string) {
		p.Kind, p.Custom = picker.PolicyCustom, &picker.CustomPolicy{Name: name, Config: json.RawMessage(`{}`)}
	}
	switch rng.IntN(21) {
	case 0, 1:
		p.Kind = picker.PolicyEDF
	case 2:
		p.Kind = picker.PolicyRoundRobin
	case 20:
		p.Kind = picker.PolicyRandom
	case 3:
		p.Kind, p.Least = picker.PolicyLeastRequest, &picker.LeastRequest{Choices: 2}
	case 4, 5:
		p.Kind, p.Flat, p.Ring = picker.PolicyRingHash, true, &picker.RingPolicy{MinSize: 64, MaxSize: 64}
	case 6:
		p.Kind, p.Flat, p.Ring = picker.PolicyMaglev, true, &picker.RingPolicy{MinSize: 251}
	case 7:
		p.Kind, p.WRR = picker.PolicyClientWRR, &picker.ClientWRR{Blackout: time.Second, Expiration: time.Minute, UpdatePeriod: time.Second}
		p.WRR.OutOfBand, p.WRR.OOBPeriod = rng.IntN(2) == 0, time.Second
	case 8, 9:
		p.Kind, p.First = picker.PolicyPickFirst, &picker.PickFirst{Shuffle: rng.IntN(2) == 0}
	case 10:
		custom("round_robin")
	case 11:
		custom(string(prompt))
	case 12:
		custom(string(tardy))
	case 13:
		custom(string(late))
	case 14:
		custom(string(failing))
	case 15, 16:
		p.Kind, p.Latency = picker.PolicyLeastLatency, &picker.LeastLatency{Decay: time.Duration(1+rng.IntN(10)) * time.Second}
	case 17, 18:
		p.Kind, p.Prequal = picker.PolicyPrequal, &picker.Prequal{
			PoolSize: 2 + rng.Uint32N(15), MaxAge: time.Second, ProbesPerRPC: 3, RemovePerRPC: 1, HotQuantile: .84,
			ProbeTimeout: 100 * time.Millisecond, MaxProbesPerSecond: 1 + rng.Uint32N(1000), Synchronous: []uint32{0, 0, 2, 3}[rng.IntN(4)],
		}
	default:
		custom(string(desperate))
	}
	if !p.Flat && p.Kind <= picker.PolicyRoundRobin && rng.IntN(4) == 0 {
		p.SlowStart = &picker.SlowStart{Window: 5 * time.Second, Aggression: 1, MinWeightPercent: 10}
	}
	byZones(rng, &p)
	if rng.IntN(8) == 0 {
		p.Subset = uint32(1 + rng.IntN(4))
	}
	return p
}

// byZones has a policy go by zones now and then, if it can.
func byZones(rng *rand.Rand, p *picker.Policy) {
	switch {
	case rng.IntN(3) > 0:
	case !delegates(p) && !p.Hashes():
		p.ZoneAware = &picker.ZoneAware{Enabled: []float64{.5, 1}[rng.IntN(2)], MinEndpoints: uint64(rng.IntN(4)), ForceLocal: uint32(rng.IntN(2)) * 2}
	}
}

// origin is where RPCs come from by a policy: a fleet that is unknown, or has a few clients
// in each zone.
func origin(p *picker.Policy, clients uint32) *picker.Origin {
	if p.ZoneAware == nil {
		return nil
	}
	o := &picker.Origin{Locality: picker.LocalityID{Zone: "0"}}
	switch {
	case clients == 0:
	case clients == 1:
		o.Err = errors.New("there is no fleet")
	default:
		o.Fleet = []picker.ZoneSize{{ID: o.Locality, Endpoints: clients, Weight: 1}, {ID: picker.LocalityID{Zone: "1"}, Endpoints: 3, Weight: 2}}
	}
	return o
}

// policyWords says a policy in a word or two.
type policyWords picker.Policy

func (p *policyWords) String() string {
	names := []string{"EDF", "round robin", "ring hash", "Maglev", "least request", "client WRR", "pick_first", "custom", "least latency", "prequal", "random"}
	s := names[p.Kind]
	if p.Custom != nil {
		s += " " + p.Custom.Name
	}
	if p.Flat {
		s += ", flat"
	}
	if p.Subset > 0 {
		s += fmt.Sprintf(", subset of %d", p.Subset)
	}
	if p.SlowStart != nil {
		s += ", slow start"
	}
	if p.ZoneAware != nil {
		s += ", zone-aware"
	}
	return s
}
