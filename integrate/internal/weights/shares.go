// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package weights

import (
	"cmp"
	"math"
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// Shift is a priority of a cluster whose endpoints get other shares of the RPCs from xdslb, which
// uses endpoint weights, than from stock, which ignores them. The shares are those of equally
// loaded endpoints that are all READY, without zone-aware routing.
type Shift struct {
	Cluster  string
	Priority int
	// Moved is the share of the RPCs that xdslb sends to other endpoints than stock, from 0 to 1.
	Moved float64
	// Endpoints are those whose shares change most, at most MaxShifted.
	Endpoints []EndpointShares
}

// EndpointShares are the shares that an endpoint has of the RPCs to its cluster.
type EndpointShares struct {
	Addr         string
	Weight       uint32
	Stock, Xdslb float64
}

// MaxShifted is the maximum number of endpoints in a Shift.
const MaxShifted = 10

// Shifts returns the shifts of a cluster: O(endpoints).
func Shifts(c *picker.Cluster) (all []Shift) {
	priority := 0
	for i := range c.Leaves {
		l := &c.Leaves[i]
		for k := range l.Priorities {
			if s := shiftOf(&l.Priorities[k]); Apply(&l.Policy) && s.Moved > 0 {
				s.Cluster, s.Priority = l.Name, priority
				all = append(all, s)
			}
			priority++
		}
	}
	return all
}

func shiftOf(p *picker.Priority) (s Shift) {
	var localities float64
	for i := range p.Localities {
		localities += float64(p.Localities[i].Weight)
	}
	for i := range p.Localities {
		l := &p.Localities[i]
		if !unequal(l) {
			continue
		}
		s.add(l, float64(l.Weight)/localities)
	}
	return s
}

// add adds the endpoints of a locality that has a share of the RPCs.
func (s *Shift) add(l *picker.Locality, share float64) {
	count, sum := 0, 0.
	for _, e := range l.Endpoints.All() {
		if e.Health == picker.Healthy {
			count++
			sum += float64(e.Weight)
		}
	}
	for _, e := range l.Endpoints.All() {
		if e.Health != picker.Healthy {
			continue
		}
		of := EndpointShares{picker.AddrText(e.Addr), e.Weight, share / float64(count), share * float64(e.Weight) / sum}
		s.Moved += of.shift() / 2
		s.Endpoints = append(s.Endpoints, of)
		if len(s.Endpoints) == 2*MaxShifted {
			s.cut()
		}
	}
	s.cut()
}

// cut keeps the endpoints whose shares change most.
func (s *Shift) cut() {
	slices.SortStableFunc(s.Endpoints, func(a, b EndpointShares) int { return cmp.Compare(b.shift(), a.shift()) })
	s.Endpoints = s.Endpoints[:min(len(s.Endpoints), MaxShifted)]
}

func (e *EndpointShares) shift() float64 { return math.Abs(e.Xdslb - e.Stock) }
