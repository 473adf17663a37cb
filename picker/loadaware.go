// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"errors"
	"fmt"
	"time"
)

// LoadAware has the parameters of Envoy's load_aware_locality: a locality gets RPCs by what
// is left of its capacity, as its endpoints report it, and the client's own locality all of
// them while it is not much busier than the others. The policy's Kind picks in a locality.
//
// Reports, and the times here, are the caller's business: Build reads
// LocalityState.Utilization.
type LoadAware struct {
	UpdatePeriod time.Duration // between updates of the shares; at least 100 ms
	Smoothing    time.Duration // time constant of a locality's utilization; above 0
	Expiration   time.Duration // of an endpoint's report; 0 is never
	OutOfBand    bool          // reports come on a stream of their own instead of with RPCs (A51)
	OOBPeriod    time.Duration // between reports on that stream; 0 unless OutOfBand
	// UtilizationFrom names metrics of a report, the largest of which is the utilization;
	// else it is application_utilization, or else cpu_utilization.
	UtilizationFrom []string

	// Threshold is by how much the utilization of the client's own locality may exceed the
	// mean of the others' for all RPCs to stay there: 0 to 1.
	Threshold float64
	// Probe is the part of the RPCs that other localities get at least, so that they
	// report: 0 or more, below 1.
	Probe float64
}

// check reports whether the parameters can be used. NaN fails the comparisons.
func (l *LoadAware) check(p *Policy) error {
	switch {
	case p.Flat:
		return errors.New("load-aware locality: the policy is flat")
	case p.ZoneAware != nil:
		return errors.New("load-aware locality: the policy is zone-aware")
	case !(l.Threshold >= 0 && l.Threshold <= 1):
		return fmt.Errorf("load-aware locality: threshold %v is not within 0 to 1", l.Threshold)
	case !(l.Probe >= 0 && l.Probe < 1):
		return fmt.Errorf("load-aware locality: probes of %v are not within 0 to 1", l.Probe)
	}
	return nil
}

// A localityLoad is what load-aware shares go by.
type localityLoad struct {
	endpoints   float64 // that can be picked
	utilization float64 // smoothed; 0 if it was never known
	stale       bool    // no endpoint has reported for long
}

// loadShares returns how RPCs are shared among localities. own is the index of the client's
// locality, or -1; its RPCs stay there if preferred is true, but for probes.
//
// A locality weighs what is left of its endpoints: their number times 1 − utilization. One
// that is stale weighs its number, so that it gets RPCs to report with. If nothing is left
// anywhere, all weigh their number. The own locality is preferred if it has something left,
// and is not busier than the mean of the others' endpoints and the threshold. Probes are
// taken from it, and shared among the others by the number of their endpoints. O(localities).
func loadShares(own int, all []localityLoad, threshold, probe float64) (shares []float64, preferred bool) {
	shares = make([]float64, len(all))
	total, busy, others := 0., 0., 0. // of the others: utilization by endpoint, endpoints
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

// maxUtilization bounds what is taken for a utilization, so that sums are finite.
const maxUtilization = 1e6

// loadRouting returns how the localities of the inputs, one each, share the RPCs of a
// load-aware policy.
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
		if u := localities[i].Utilization; u > 0 { // and not NaN
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
		r.Reason = "by what is left of each locality: the node of the bootstrap has no locality"
	case own < 0 || all[own].endpoints == 0:
		r.Reason = "by what is left of each locality: the own one has no endpoint to pick"
	case all[own].endpoints == total:
		r.Reason = "all stay in the own locality: no other has an endpoint to pick"
	case preferred:
		r.Reason = fmt.Sprintf("%.4g %% stay in the own locality: it is not busier than the others by more than %.4g", 100*shares[own], policy.Threshold)
	default:
		r.Reason = fmt.Sprintf("by what is left of each locality: the own one is busier than the others by more than %.4g", policy.Threshold)
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
