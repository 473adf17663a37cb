// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math"
)

// This file is Envoy's zone-aware routing: RPCs stay in the zone that they come from as
// far as that loads all endpoints alike. A zone is a locality: region, zone and sub-zone.

// ZoneAware has the parameters of Envoy's zone_aware_lb_config. It is in force for
// priority 0 of a leaf, as in Envoy, while Leaf.Origin knows the zones of the client's own
// fleet. Otherwise the policy is what it would be without.
type ZoneAware struct {
	Enabled float64 // part of the RPCs that go by zone, 0 to 1; the others go as without it
	// MinEndpoints is the number of endpoints that have not failed below which it is not in
	// force.
	MinEndpoints uint64
	// ForceLocal keeps all RPCs in the own zone while it has so many endpoints that have
	// not failed, whatever the fleet; 0 is off.
	ForceLocal uint32
	// ByWeight has zones counted by the sum of their endpoints' weights instead of by
	// number.
	ByWeight bool
}

// Origin is where the RPCs of this client come from.
type Origin struct {
	Locality LocalityID // the client's own: that of the bootstrap's node
	// Fleet are the zones of the client's fleet, its own among them. It is empty while
	// they are not known, and then Err says why, unless they are still to come.
	Fleet []FleetZone
	Err   error
}

// FleetZone is how much of a fleet a zone has. Endpoints that are unhealthy or drain are
// not counted.
type FleetZone struct {
	ID        LocalityID
	Endpoints uint32
	Weight    uint64 // sum over the endpoints
}

// check reports whether the parameters can be used. NaN fails the comparison.
func (z *ZoneAware) check(kind PolicyKind) error {
	switch kind {
	case PolicyEDF, PolicyRoundRobin, PolicyLeastRequest, PolicyLeastLatency, PolicyPrequal, PolicyClientWRR:
	default:
		return fmt.Errorf("zone-aware routing is not for policy kind %d", kind)
	}
	if !(z.Enabled >= 0 && z.Enabled <= 1) {
		return fmt.Errorf("zone-aware routing: %v of the RPCs is not within 0 to 1", z.Enabled)
	}
	return nil
}

// zoneShares returns how the RPCs of a client are shared among zones: Envoy's residual
// capacities. fleet and upstream are the parts of the client's fleet and of the endpoints
// that each zone has; those of upstream sum to 1, those of fleet to 1 at most, as the fleet
// may be in more zones. own is the index of the client's zone, or -1 if it has no
// endpoints.
//
// A zone with a larger part of the endpoints than of the fleet takes all RPCs of its own
// clients. Otherwise it takes so many that its endpoints get no more than others, and the
// rest goes to zones with more endpoints than clients, in proportion to how many more. If
// all clients do so, every zone gets its part of upstream, and no fewer RPCs could leave
// their zone: the sum of max(0, fleet − upstream) over zones. O(zones).
func zoneShares(own int, fleet, upstream []float64) []float64 {
	shares := make([]float64, len(upstream))
	local := 0.
	if own >= 0 && upstream[own] > 0 {
		local = 1
		if fleet[own] > upstream[own] {
			local = upstream[own] / fleet[own]
		}
	}
	if local == 1 {
		shares[own] = 1
		return shares
	}
	residual := 0.
	for i := range shares {
		if i != own {
			shares[i] = max(upstream[i]-fleet[i], 0)
			residual += shares[i]
		}
	}
	if residual == 0 { // only by rounding
		copy(shares, upstream)
		return shares
	}
	for i := range shares {
		shares[i] *= (1 - local) / residual
	}
	if own >= 0 {
		shares[own] = local
	}
	return shares
}

// A LocalityRouting says how picks of a cluster choose a locality, where that is not by
// the configured weights alone.
type LocalityRouting struct {
	InForce bool
	Reason  string     // why it is not in force, or how much stays in the own zone and why
	Own     LocalityID // the client's
	// Localities are those of the priority in use, by index; empty if not in force.
	Localities []LocalityShare
}

// A LocalityShare is a locality's part of the RPCs, and what it follows from.
type LocalityShare struct {
	ID          LocalityID
	Share       float64 // of the RPCs of this client
	Endpoints   float64 // of the endpoints that can be picked
	Fleet       float64 // of the client's fleet (zone-aware routing)
	Utilization float64 // smoothed; 0 if it is not known (load-aware locality)
}

// LocalityRouting returns how picks of the cluster with an index in Config.Clusters choose
// a locality; nil if its policy is neither zone-aware nor load-aware, or the cluster has no
// priority in use.
func (s *Snapshot) LocalityRouting(cluster int) *LocalityRouting {
	if cluster < 0 || cluster >= s.clusters.Len() {
		return nil
	}
	return s.clusters.At(int(cluster)).routing
}

func localityOff(own LocalityID, format string, args ...any) *LocalityRouting {
	return &LocalityRouting{Own: own, Reason: fmt.Sprintf(format, args...)}
}

// zoneRouting returns how the localities of the inputs, one each, share the RPCs of a
// zone-aware policy.
func zoneRouting(leaf *Leaf, priority int, inputs []groupInput) *LocalityRouting {
	z, origin := leaf.Policy.ZoneAware, leaf.Origin
	if origin == nil {
		return localityOff(LocalityID{}, "it is not known where the client is")
	}
	off := func(format string, args ...any) *LocalityRouting {
		return localityOff(origin.Locality, format, args...)
	}
	total, alive, own := 0., uint64(0), -1
	for i := range inputs {
		in := &inputs[i]
		alive += in.alive()
		total += in.size(z.ByWeight)
		if in.localities[0].ID == origin.Locality {
			own = i
		}
	}
	switch {
	case origin.Err != nil:
		return off("the zones of the own fleet are not known: %v", origin.Err)
	case len(origin.Fleet) == 0:
		return off("the zones of the own fleet are not known yet")
	case len(inputs) < 2:
		return off("there is one locality")
	case len(origin.Fleet) < 2 && z.ForceLocal == 0:
		return off("the own fleet is in one zone")
	case priority != 0:
		return off("priority %d is in use, and it is for priority 0", priority)
	case alive < z.MinEndpoints:
		return off("%d endpoints have not failed, less than min_cluster_size %d", alive, z.MinEndpoints)
	case z.Enabled == 0:
		return off("routing_enabled is 0")
	case total == 0:
		return off("no endpoint is READY")
	}
	fleet, upstream := make([]float64, len(inputs)), make([]float64, len(inputs))
	for i := range inputs {
		fleet[i] = origin.share(inputs[i].localities[0].ID, z.ByWeight)
		upstream[i] = inputs[i].size(z.ByWeight) / total
	}
	r := &LocalityRouting{InForce: true, Own: origin.Locality}
	var shares []float64
	if own >= 0 && z.ForceLocal > 0 && upstream[own] > 0 && inputs[own].alive() >= uint64(z.ForceLocal) {
		shares = make([]float64, len(inputs))
		shares[own] = 1
		r.Reason = fmt.Sprintf("force_local_zone keeps all in the own zone: it has %d endpoints or more", z.ForceLocal)
	} else {
		shares = zoneShares(own, fleet, upstream)
		r.Reason = zoneReason(own, fleet, upstream, shares)
	}
	if z.Enabled < 1 {
		mix(shares, withoutZones(&leaf.Policy, inputs), z.Enabled)
		r.Reason += fmt.Sprintf("; routing_enabled is %.4g %%", 100*z.Enabled)
	}
	for i := range inputs {
		r.Localities = append(r.Localities, LocalityShare{
			ID: inputs[i].localities[0].ID, Share: shares[i], Endpoints: upstream[i], Fleet: fleet[i]})
	}
	return r
}

func zoneReason(own int, fleet, upstream, shares []float64) string {
	if own < 0 || upstream[own] == 0 {
		return "the own zone has no endpoint to pick"
	}
	relation := "and only"
	if shares[own] == 1 {
		relation = "and"
	}
	return fmt.Sprintf("%.4g %% stay in the own zone: it has %.4g %% of the fleet %s %.4g %% of the endpoints",
		100*shares[own], 100*fleet[own], relation, 100*upstream[own])
}

// share returns the part of the fleet that is in a zone.
func (o *Origin) share(id LocalityID, byWeight bool) float64 {
	part, total := 0., 0.
	for _, z := range o.Fleet {
		n := float64(z.Endpoints)
		if byWeight {
			n = float64(z.Weight)
		}
		total += n
		if z.ID == id {
			part += n
		}
	}
	if total == 0 {
		return 0
	}
	return part / total
}

// alive returns how many endpoints have not failed.
func (in *groupInput) alive() uint64 {
	return uint64(in.count[Idle] + in.count[Connecting] + in.count[Ready])
}

// size returns the number, or the weight, of the endpoints that are READY.
func (in *groupInput) size(byWeight bool) float64 {
	if !byWeight {
		return float64(in.count[Ready])
	}
	sum, k := 0., 0
	for i := range in.localities {
		for _, e := range in.localities[i].Endpoints.All() {
			if in.states[k] == Ready {
				sum += float64(e.Weight)
			}
			k++
		}
	}
	return sum
}

// withoutZones returns the shares that localities would have without zone-aware routing:
// those of their endpoints if the policy is flat, and of their own weights otherwise.
func withoutZones(policy *Policy, inputs []groupInput) []float64 {
	byWeight := policy.Kind == PolicyEDF || policy.Kind == PolicyLeastRequest && !policy.Least.IgnoreWeights
	shares, total := make([]float64, len(inputs)), 0.
	for i := range inputs {
		switch {
		case inputs[i].count[Ready] == 0:
		case policy.Flat:
			shares[i] = inputs[i].size(byWeight)
		default:
			shares[i] = float64(inputs[i].weight)
		}
		total += shares[i]
	}
	for i := range shares {
		shares[i] /= total
	}
	return shares
}

// mix makes of shares the weighted mean of these and others.
func mix(shares, others []float64, part float64) {
	for i := range shares {
		shares[i] = part*shares[i] + (1-part)*others[i]
	}
}

// shareUnit is the integer weight that stands for all RPCs.
const shareUnit = 1 << 31

// shareWeight returns the integer weight of a share. It is off by less than 1e-9, and 0
// for less than half of that.
func shareWeight(share float64) uint32 { return uint32(math.Round(share * shareUnit)) }
