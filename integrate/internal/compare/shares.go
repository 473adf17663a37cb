// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
	"math"
	"slices"

	"github.com/xdslb/xdslb/integrate/internal/weights"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
)

// maxShifted is the maximum number of endpoints of a ShareShift.
const maxShifted = 10

// leastMoved is the smallest share of RPCs that is reported.
const leastMoved = 1e-3

// Shares returns the clusters whose endpoints have other shares of the RPCs in xdslb than in stock,
// which the endpoints that can be picked now would have there. The status is detailed. Clusters with
// policies that have no shares, such as pick_first, and policies that stock lacks are not compared.
// O(endpoints).
func Shares(cfg *picker.Config, status *report.TargetStatus) (list []report.ShareShift) {
	if cfg == nil {
		return nil
	}
	leaves := map[string]*picker.Leaf{}
	for _, c := range cfg.Clusters {
		for i := range c.Leaves {
			leaves[c.Leaves[i].Name] = &c.Leaves[i]
		}
	}
	for i := range status.Clusters {
		c := &status.Clusters[i]
		for k := range c.Leaves {
			l := leaves[c.Leaves[k].Name]
			for n := range c.Leaves[k].Priorities {
				if p := &c.Leaves[k].Priorities[n]; l != nil && p.InUse {
					if s, ok := shiftOf(c, &l.Policy, p); ok {
						list = append(list, s)
					}
				}
			}
		}
	}
	return list
}

// stockShares returns the share of an endpoint of each locality in stock, and whether the policy has
// shares there.
func stockShares(policy *picker.Policy, p *report.PriorityStatus) (shares []float64, ok bool) {
	flat := policy.Flat
	switch policy.Kind {
	case picker.PolicyEDF, picker.PolicyRoundRobin:
	case picker.PolicyLeastRequest:
		flat = true
	default:
		return nil, false
	}
	if policy.Subset > 0 {
		return nil, false
	}
	shares = make([]float64, len(p.Localities))
	var endpoints, weights float64
	for i := range p.Localities {
		l := &p.Localities[i]
		for k := range l.Endpoints {
			if l.Endpoints[k].Out == "" {
				shares[i]++
			}
		}
		endpoints += shares[i]
		if shares[i] > 0 {
			weights += float64(l.Weight)
		}
	}
	for i, n := range shares {
		switch {
		case n == 0:
		case flat:
			shares[i] = 1 / endpoints
		default:
			shares[i] = float64(p.Localities[i].Weight) / weights / n
		}
	}
	return shares, endpoints > 0
}

// shiftOf compares a priority in use.
func shiftOf(c *report.ClusterStatus, policy *picker.Policy, p *report.PriorityStatus) (s report.ShareShift, ok bool) {
	shares, ok := stockShares(policy, p)
	if !ok {
		return s, false
	}
	s.Cluster = c.Name
	var unequal, slow bool
	for i := range p.Localities {
		first := uint32(0)
		for k := range p.Localities[i].Endpoints {
			e := &p.Localities[i].Endpoints[k]
			if e.Out != "" {
				continue
			}
			first = cmp.Or(first, e.Weight)
			unequal = unequal || e.Weight != first && weights.Apply(policy)
			slow = slow || e.SlowStart > 0 && e.SlowStart < 1
			of := report.EndpointShares{Address: e.Address, Stock: shares[i], Xdslb: e.Share}
			if change(of) == 0 {
				continue
			}
			s.Moved += change(of) / 2
			if s.Endpoints = append(s.Endpoints, of); len(s.Endpoints) == 2*maxShifted {
				s.Endpoints = largest(s.Endpoints)
			}
		}
	}
	for _, cause := range []struct {
		applies bool
		name    string
	}{
		{unequal, "endpoint weights"},
		{c.Zones != nil && c.Zones.InForce, "zone-aware routing"},
		{slow, "slow start"},
		{policy.Kind == picker.PolicyLeastRequest && !policy.Flat && len(p.Localities) > 1, "locality weights with LEAST_REQUEST"},
	} {
		if cause.applies {
			s.Causes = append(s.Causes, cause.name)
		}
	}
	s.Endpoints = largest(s.Endpoints)
	return s, s.Moved >= leastMoved && s.Causes != nil
}

func change(e report.EndpointShares) float64 {
	if d := math.Abs(e.Xdslb - e.Stock); d > 1e-9 {
		return d
	}
	return 0
}

// largest returns the endpoints whose shares change most.
func largest(list []report.EndpointShares) []report.EndpointShares {
	slices.SortStableFunc(list, func(a, b report.EndpointShares) int { return cmp.Compare(change(b), change(a)) })
	return list[:min(len(list), maxShifted)]
}
