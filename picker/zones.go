// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math"
)

// This file implements Envoy's zone-aware routing: RPCs stay in their zone of origin as far as
// all endpoints remain equally loaded. A zone is a locality: region, zone and sub-zone. See zonelatency.go for
// policies that time RPCs.

// ZoneAware has the parameters of Envoy's zone_aware_lb_config. It applies to priority 0 of a
// leaf, as in Envoy, while Leaf.Origin has the zones of the local cluster. Otherwise the policy
// behaves as without it.
type ZoneAware struct {
	Enabled float64 // fraction of RPCs subject to zone-aware routing, 0 to 1
	// MinEndpoints is the number of endpoints that have not failed below which zone-aware
	// routing is disabled.
	MinEndpoints uint64
	// ForceLocal keeps all RPCs in the client's zone while it has at least this many endpoints that
	// have not failed, regardless of the local cluster; 0 means off.
	ForceLocal uint32
	// ByWeight measures zones by the sum of their endpoints' weights instead of their number.
	ByWeight bool
}

// Origin describes where the RPCs of this client come from.
type Origin struct {
	Locality LocalityID // of the client: the locality of the bootstrap's node
	// Fleet are the zones of the local cluster, the fleet of which this client is a member,
	// including the client's zone. It is empty while they are not known, and Err then has the
	// reason, unless they are still pending.
	Fleet []ZoneSize
	Err   error
}

// ZoneSize is the size of one zone of the local cluster, without unhealthy and draining
// endpoints.
type ZoneSize struct {
	ID        LocalityID
	Endpoints uint32
	Weight    uint64 // sum over the endpoints
}

// check returns an error if the parameters are invalid. NaN fails the comparison.
func (z *ZoneAware) check() error {
	if !(z.Enabled >= 0 && z.Enabled <= 1) {
		return fmt.Errorf("zone-aware routing: enabled fraction %v is not within 0 to 1", z.Enabled)
	}
	return nil
}

// zoneShares returns the shares of the zones in the RPCs of a client, by Envoy's residual
// capacities. fleet and upstream are the fractions of the local cluster and of the endpoints in
// each zone. The upstream fractions sum to 1, the fleet fractions to at most 1, since the fleet
// may be in further zones. own is the index of the client's zone, or -1 if it has no endpoints.
//
// A zone with a larger fraction of the endpoints than of the fleet takes all RPCs of its own
// clients. Otherwise it takes as many as keep its endpoints equally loaded, and the rest goes
// to zones with more endpoints than clients, in proportion to the difference. If all clients do
// so, every zone gets its fraction of upstream, and the number of RPCs that leave their zone is
// minimal: the sum of max(0, fleet − upstream) over zones. O(zones).
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
	if residual == 0 { // only because of rounding
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

// A LocalityRouting describes how picks of a cluster choose a locality, if not only by the
// configured weights.
type LocalityRouting struct {
	InForce bool
	Reason  string     // why it is not in effect, or the share of RPCs that stay in the client's zone, and why
	Own     LocalityID // of the client
	// Localities are the localities of the active priority, by index; empty if not in effect.
	Localities []localityShare
	forced     bool // into the client's zone
}

// A localityShare is a locality's share of the RPCs, and its inputs.
type localityShare struct {
	ID        LocalityID
	Share     float64 // fraction of the RPCs of this client
	Endpoints float64 // fraction of the READY endpoints
	Fleet     float64 // fraction of the local cluster
}

// LocalityRouting returns how picks of a cluster choose a locality, or nil if its policy is not
// zone-aware or the cluster has no active priority. cluster is an index in Config.Clusters.
func (s *Snapshot) LocalityRouting(cluster int) *LocalityRouting {
	if cluster < 0 || cluster >= s.clusters.Len() {
		return nil
	}
	return s.clusters.At(int(cluster)).routing
}

func localityOff(own LocalityID, format string, args ...any) *LocalityRouting {
	return &LocalityRouting{Own: own, Reason: fmt.Sprintf(format, args...)}
}

// zoneRouting returns the shares of the localities of the inputs, one each, for a zone-aware
// policy.
func (b *builder) zoneRouting(leaf *Leaf, priority int, inputs []groupInput) *LocalityRouting {
	z, origin := leaf.Policy.ZoneAware, leaf.Origin
	if origin == nil {
		return localityOff(LocalityID{}, "the client's locality is unknown")
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
		return off("the zones of the local cluster are unknown: %v", origin.Err)
	case len(origin.Fleet) == 0:
		return off("the zones of the local cluster are not known yet")
	case len(inputs) < 2:
		return off("there is one locality")
	case len(origin.Fleet) < 2 && z.ForceLocal == 0:
		return off("the local cluster is in one zone")
	case priority != 0:
		return off("priority %d is in use, and zone-aware routing applies only to priority 0", priority)
	case alive < z.MinEndpoints:
		return off("%d endpoints have not failed, fewer than min_cluster_size %d", alive, z.MinEndpoints)
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
		shares[own], r.forced = 1, true
		r.Reason = fmt.Sprintf("force_local_zone keeps all RPCs in the client's zone: it has at least %d endpoints", z.ForceLocal)
	} else {
		shares = zoneShares(own, fleet, upstream)
		r.Reason = zoneReason(own, fleet, upstream, shares)
	}
	if z.Enabled < 1 {
		mix(shares, b.withoutZones(&leaf.Policy, inputs), z.Enabled)
		r.Reason += fmt.Sprintf("; routing_enabled is %.4g %%", 100*z.Enabled)
	}
	if leaf.Policy.TimesRPCs() && !r.forced {
		r.Reason += fmt.Sprintf("; RPCs leave a zone that is more than %d times slower than the others", zoneMargin)
	}
	for i := range inputs {
		r.Localities = append(r.Localities, localityShare{
			ID: inputs[i].localities[0].ID, Share: shares[i], Endpoints: upstream[i], Fleet: fleet[i]})
	}
	return r
}

func zoneReason(own int, fleet, upstream, shares []float64) string {
	if own < 0 || upstream[own] == 0 {
		return "the client's zone has no READY endpoint"
	}
	relation := "and only"
	if shares[own] == 1 {
		relation = "and"
	}
	return fmt.Sprintf("%.4g %% of the RPCs stay in the client's zone: it has %.4g %% of the local cluster %s %.4g %% of the READY endpoints",
		100*shares[own], 100*fleet[own], relation, 100*upstream[own])
}

// share returns the fraction of the fleet that is in a zone.
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

// alive returns the number of endpoints that have not failed.
func (in *groupInput) alive() uint64 {
	return uint64(in.count[Idle] + in.count[Connecting] + in.count[Ready])
}

// size returns the number, or the total weight, of the READY endpoints.
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

// withoutZones returns the shares of localities without zone-aware routing: the sums of the
// weights of their endpoints if the policy is flat, otherwise by their own weights.
// O(endpoints).
func (b *builder) withoutZones(policy *Policy, inputs []groupInput) []float64 {
	shares, total := make([]float64, len(inputs)), 0.
	var weights []uint32
	if policy.Flat {
		weights = b.endpointWeights(merged(inputs), policy)
	}
	for i := range inputs {
		switch n := len(inputs[i].states); {
		case policy.Flat:
			for _, w := range weights[:n] {
				shares[i] += float64(w)
			}
			weights = weights[n:]
		case inputs[i].count[Ready] > 0:
			shares[i] = float64(inputs[i].weight)
		}
		total += shares[i]
	}
	for i := range shares {
		shares[i] /= total
	}
	return shares
}

// merged returns one input with the endpoints of all inputs, which have been scanned.
func merged(inputs []groupInput) *groupInput {
	all, list := new(groupInput), StateSlice(nil)
	for i := range inputs {
		all.localities = append(all.localities, inputs[i].localities...)
		all.states = append(all.states, inputs[i].states...)
		list = appendStates(list, inputs[i].endpoints)
	}
	all.endpoints = list
	return all
}

// mix replaces shares by the weighted mean of shares and others.
func mix(shares, others []float64, part float64) {
	for i := range shares {
		shares[i] = part*shares[i] + (1-part)*others[i]
	}
}

// shareUnit is the integer weight for all RPCs.
const shareUnit = 1 << 31

// shareWeight returns the integer weight of a share. It is off by less than 1e-9, and 0 for
// less than half of that.
func shareWeight(share float64) uint32 { return uint32(math.Round(share * shareUnit)) }
