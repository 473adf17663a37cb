// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package compare compares the configuration of a channel with what google.golang.org/grpc/xds of
// grpc-go 1.85, called stock here, would do with the same resources: the effect of a roll-back.
//
//	compare.go   Differences, the values that it depends on, and shares of the RPCs that differ
//	rows.go      the list of features
//
// Package resource finds the rules of stock that a resource violates (resource.RejectedByStock),
// since only the decoder sees the whole resource.
package compare

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// Input describes a channel.
type Input struct {
	// Config is the configuration in use, as adapted to the channel; nil before the first one.
	Config *picker.Config
	// Resources are the resources of the target.
	Resources []xds.ResourceStatus
	// Patches are the patches of the overlay.
	Patches []Patch
	Options Options
	// Bootstrap is nil if it is unknown.
	Bootstrap *bootstrap.Config
	// Variants are the RPCs of ADS that the client uses, by server URI: see xds.serverStatus.
	Variants map[string]string
	// Targets returns the number of targets of the process. It may be nil.
	Targets func() int
	// Getenv is os.Getenv, except in tests.
	Getenv func(string) string
}

// Options are the fields of integrate.Config that stock lacks.
type Options struct {
	Bootstrap, Delta, KeepDeleted, DialOptions, RetryThrottling bool // whether the fields are set
	LocalCluster, HealthCheckService                            string
	DefaultMaxRequests                                          uint32
}

// Patch is a patch of an overlay.
type Patch struct {
	Text    string   // source and path
	Kind    string   // of the resource, as in the document
	Fields  []string // that it sets, at the top level
	Changed []string // resources that it changes
}

// Differences returns the features in use that stock rejects, lacks or handles differently, those
// that lose RPCs first. O(routes + clusters + endpoints + resources).
func Differences(in *Input) (list []report.StockDifference) {
	all := *in
	if all.Getenv == nil {
		all.Getenv = os.Getenv
	}
	if all.Config == nil {
		all.Config = &picker.Config{}
	}
	for _, loses := range []bool{true, false} {
		for i := range rows {
			if r := &rows[i]; r.loses == loses {
				var at places
				if r.find(&all, &at); at.found {
					list = append(list, report.StockDifference{LosesRPCs: loses, Feature: r.feature, Where: at.texts(), Effect: r.effect, Remedy: r.remedy})
				}
			}
		}
	}
	return list
}

// Losses returns the differences that lose RPCs.
func Losses(list []report.StockDifference) (losses []report.StockDifference) {
	for _, d := range list {
		if d.LosesRPCs {
			losses = append(losses, d)
		}
	}
	return losses
}

// enabled reports whether a variable of gRPC is true, whose default is false.
func (in *Input) enabled(variable string) bool {
	return strings.EqualFold(in.Getenv(variable), "true")
}

// places collects the users of a feature, each once. A feature of the channel has no users.
type places struct {
	found bool
	list  []string
	more  int
	seen  map[string]bool
}

// maxPlaces is the maximum number of users that are listed.
const maxPlaces = 8

func (p *places) add(place string) {
	if p.seen[place] {
		return
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.found, p.seen[place] = true, true
	if len(p.list) == maxPlaces {
		p.more++
		return
	}
	p.list = append(p.list, place)
}

func (p *places) texts() []string {
	if p.more > 0 {
		return append(p.list, fmt.Sprintf("and %d more", p.more))
	}
	return p.list
}

// finder finds a feature. The configuration of in is not nil.
type finder func(in *Input, at *places)

// channel finds a feature of the channel.
func channel(has func(in *Input) bool) finder {
	return func(in *Input, at *places) { at.found = has(in) }
}

// byLeaf finds a feature of clusters with endpoints.
func byLeaf(has func(in *Input, l *picker.Leaf) bool) finder {
	return func(in *Input, at *places) {
		for _, c := range in.Config.Clusters {
			for i := range c.Leaves {
				if l := &c.Leaves[i]; has(in, l) {
					at.add("Cluster " + l.Name)
				}
			}
		}
	}
}

// byRoute finds a feature of routes.
func byRoute(has func(in *Input, r *picker.Route) bool) finder {
	return func(in *Input, at *places) {
		for i := range in.Config.Routes {
			if r := &in.Config.Routes[i]; has(in, r) {
				at.add(routeName(i, r))
			}
		}
	}
}

func routeName(i int, r *picker.Route) string {
	if r.Name == "" {
		return fmt.Sprintf("route %d", i)
	}
	return fmt.Sprintf("route %d %q", i, r.Name)
}

// byRejection finds resources of a type that stock rejects.
func byRejection(t resource.Type) finder {
	return func(in *Input, at *places) {
		for i := range in.Resources {
			if r := &in.Resources[i]; r.Type == t {
				for _, why := range r.RejectedByStock {
					at.add(fmt.Sprintf("%v %s: %s", r.Type, r.Name, why))
				}
			}
		}
	}
}

// rejected reports whether stock rejects a resource.
func (in *Input) rejected(t resource.Type, name string) bool {
	return slices.ContainsFunc(in.Resources, func(r xds.ResourceStatus) bool {
		return r.Type == t && (name == "" || r.Name == name) && len(r.RejectedByStock) > 0
	})
}

// byPatch finds patches in force.
func byPatch(has func(p *Patch) bool) finder {
	return func(in *Input, at *places) {
		for i := range in.Patches {
			if p := &in.Patches[i]; has(p) {
				for _, name := range p.Changed {
					at.add(fmt.Sprintf("%s, by %s", name, p.Text))
				}
			}
		}
	}
}

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
	_, weighted := policy.Unweighted()
	var unequal, slow bool
	for i := range p.Localities {
		first := uint32(0)
		for k := range p.Localities[i].Endpoints {
			e := &p.Localities[i].Endpoints[k]
			if e.Out != "" {
				continue
			}
			first = cmp.Or(first, e.Weight)
			unequal = unequal || e.Weight != first && weighted
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
