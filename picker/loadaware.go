// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"errors"
	"fmt"
	"time"
)

// LoadAware has the parameters of Envoy's load_aware_locality: a locality gets RPCs in
// proportion to the unused capacity that its endpoints report, and the client's locality
// gets all of them while it is not much busier than the other localities. The policy's Kind
// picks within a locality.
//
// The caller handles reports and the durations below: Build reads LocalityState.Utilization.
type LoadAware struct {
	UpdatePeriod time.Duration // between updates of the shares; at least 100 ms
	Smoothing    time.Duration // time constant of a locality's utilization; above 0
	Expiration   time.Duration // of an endpoint's report; 0 means never
	OutOfBand    bool          // reports arrive on a separate stream instead of with RPCs (A51)
	OOBPeriod    time.Duration // interval of reports on that stream; 0 unless OutOfBand
	// UtilizationFrom names metrics of a report, the largest of which is the utilization;
	// otherwise it is application_utilization, otherwise cpu_utilization.
	UtilizationFrom []string

	// Threshold is the amount by which the utilization of the client's locality may exceed
	// the mean of the other localities while all RPCs stay in it: 0 to 1.
	Threshold float64
	// Probe is the minimum fraction of RPCs that go to other localities, so that they report: 0
	// or more, below 1.
	Probe float64
}

// check returns an error if the parameters are invalid. NaN fails the comparisons.
func (l *LoadAware) check(p *Policy) error {
	switch {
	case p.Flat:
		return errors.New("load-aware locality: not supported by a flat policy")
	case p.ZoneAware != nil:
		return errors.New("load-aware locality: not supported by a zone-aware policy")
	case !(l.Threshold >= 0 && l.Threshold <= 1):
		return fmt.Errorf("load-aware locality: threshold %v is not within 0 to 1", l.Threshold)
	case !(l.Probe >= 0 && l.Probe < 1):
		return fmt.Errorf("load-aware locality: probe fraction %v is not within 0 to 1", l.Probe)
	}
	return nil
}

// A localityLoad is the input of load-aware shares for one locality.
type localityLoad struct {
	endpoints   float64 // number of READY endpoints
	utilization float64 // smoothed; 0 if it has never been known
	stale       bool    // no endpoint has reported recently
}

// loadShares returns the shares of RPCs of the localities. own is the index of the client's
// locality, or -1; if preferred is true, its RPCs stay there, except for probes.
//
// The weight of a locality is its unused capacity: the number of its endpoints times 1 −
// utilization. The weight of a stale locality is its number of endpoints, so that it gets RPCs
// to report with. If no locality has unused capacity, all weights are numbers of endpoints. The
// own locality is preferred if it has unused capacity and its utilization is at most the mean
// of the other localities' endpoints plus the threshold. Probes are taken from it, and
// distributed over the other localities by their numbers of endpoints. O(localities).
func loadShares(own int, all []localityLoad, threshold, probe float64) (shares []float64, preferred bool) {
	shares = make([]float64, len(all))
	total := 0.
	busy, others := 0., 0. // of the other localities: utilization times endpoints, endpoints
	for i, l := range all {
		shares[i] = l.endpoints
		if !l.stale {
			shares[i] *= max(1-l.utilization, 0)
		}
		total += shares[i]
		if i != own {
			busy += l.utilization * l.endpoints
			others += l.endpoints
		}
	}
	if total == 0 {
		for i, l := range all {
			shares[i] = l.endpoints
			total += l.endpoints
		}
		own = -1
	}
	for i := range shares {
		shares[i] /= total
	}
	if own < 0 || others == 0 {
		return shares, false
	}
	if preferred = shares[own] > 0 && all[own].utilization <= busy/others+threshold; preferred {
		clear(shares)
		shares[own] = 1
	}
	if missing := min(probe-(1-shares[own]), shares[own]); missing > 0 {
		for i, l := range all {
			if i == own {
				shares[i] -= missing
			} else {
				shares[i] += missing * l.endpoints / others
			}
		}
	}
	return shares, preferred
}

// maxUtilization limits utilizations, so that sums are finite.
const maxUtilization = 1e6

// loadRouting returns the shares of the localities of the inputs, one each, for a load-aware
// policy.
func loadRouting(leaf *Leaf, localities []LocalityState, inputs []groupInput) *LocalityRouting {
	policy := leaf.Policy.LoadAware
	var here LocalityID
	if leaf.Origin != nil {
		here = leaf.Origin.Locality
	}
	all, total, own, known := make([]localityLoad, len(inputs)), 0., -1, false
	for i := range inputs {
		l := &all[i]
		l.endpoints, l.stale = inputs[i].size(false), localities[i].Stale
		if u := localities[i].Utilization; u > 0 { // false for NaN
			l.utilization, known = min(u, maxUtilization), true
		}
		total += l.endpoints
		if inputs[i].localities[0].ID == here && here != (LocalityID{}) {
			own = i
		}
	}
	if total == 0 {
		return localityOff(here, "no endpoint is READY")
	}
	shares, preferred := loadShares(own, all, policy.Threshold, policy.Probe)
	r := &LocalityRouting{InForce: true, Own: here}
	switch {
	case here == LocalityID{}:
		r.Reason = "by unused capacity: the node of the bootstrap has no locality"
	case own < 0 || all[own].endpoints == 0:
		r.Reason = "by unused capacity: the client's locality has no READY endpoint"
	case all[own].endpoints == total:
		r.Reason = "all RPCs stay in the client's locality: no other locality has a READY endpoint"
	case preferred:
		r.Reason = fmt.Sprintf("%.4g %% of the RPCs stay in the client's locality: its utilization exceeds that of the other localities by at most %.4g", 100*shares[own], policy.Threshold)
	default:
		r.Reason = fmt.Sprintf("by unused capacity: the utilization of the client's locality exceeds that of the other localities by more than %.4g", policy.Threshold)
	}
	if !known {
		r.Reason += "; no endpoint has reported yet"
	}
	for i := range inputs {
		r.Localities = append(r.Localities, LocalityShare{
			ID: inputs[i].localities[0].ID, Share: shares[i], Endpoints: all[i].endpoints / total, Utilization: all[i].utilization})
	}
	return r
}
