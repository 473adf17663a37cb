// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// target is the service that the demo calls.
const target = "demo.xdslb.test"

// fleet is the other side of the client: a control plane and nine backends
// in three localities over two priorities.
type fleet struct {
	control    *xdstest.Server
	localities []*locality
	drop       uint32 // per million; 0 means no drop category
}

type locality struct {
	zone     string
	priority uint32
	weight   uint32
	backends []*xdstest.Backend
	weights  []uint32 // of the backends
}

func startFleet() (*fleet, error) {
	control, err := xdstest.Start(xdstest.Options{})
	if err != nil {
		return nil, err
	}
	f := &fleet{control: control, localities: []*locality{
		{zone: "east-a", priority: 0, weight: 3, weights: []uint32{1, 2, 3}},
		{zone: "east-b", priority: 0, weight: 1, weights: []uint32{1, 1, 1}},
		{zone: "west-a", priority: 1, weight: 1, weights: []uint32{1, 1, 1}},
	}}
	for _, l := range f.localities {
		if l.backends, err = xdstest.StartBackends(len(l.weights), xdstest.BackendOptions{}); err != nil {
			f.stop()
			return nil, err
		}
	}
	return f, f.push()
}

func (f *fleet) stop() {
	f.control.Stop()
	for _, l := range f.localities {
		for _, b := range l.backends {
			b.Stop()
		}
	}
}

// push serves the current fleet.
func (f *fleet) push() error {
	var ls []xdstest.Locality
	for _, l := range f.localities {
		x := xdstest.Locality{Place: xdstest.Place{Region: "demo", Zone: l.zone}, Priority: l.priority, Weight: l.weight}
		x.Endpoints = xdstest.BackendEndpoints(l.backends...)
		for i := range x.Endpoints {
			x.Endpoints[i].Weight = l.weights[i]
		}
		ls = append(ls, x)
	}
	r := xdstest.Service(target, ls...)
	if f.drop > 0 {
		testplane.Drop(r.Endpoints[0], "demo-throttle", f.drop)
	}
	return f.control.Set(r)
}

// picture returns the expected pick configuration when the fleet has been applied and priority
// 0 is active.
func (f *fleet) picture() string {
	out := fmt.Sprintf("drops %.6f", float64(f.drop)/1e6)
	for _, l := range f.localities {
		if l.priority > 0 {
			continue
		}
		out += fmt.Sprintf("; %s %d:", l.zone, l.weight)
		for i, b := range l.backends {
			out += fmt.Sprintf(" %s*%d", b.Addr(), l.weights[i])
		}
	}
	return out
}

// picture returns the actual pick configuration of the client in the format of fleet.picture.
// It contains the reasons for endpoints that cannot be picked.
func picture(x *report.Explanation) string {
	if x.Pending || len(x.Routes) == 0 {
		return "in the making"
	}
	c := x.Routes[len(x.Routes)-1].Clusters[0]
	drops := 0.
	if c.Status != nil {
		for _, d := range c.Status.LeafInUse().Drops {
			drops += d.Probability
		}
	}
	out := fmt.Sprintf("drops %.6f", drops)
	for _, l := range c.Status.Localities() {
		out += fmt.Sprintf("; %s %d:", l.Zone, l.Weight)
		for _, e := range l.Endpoints {
			out += fmt.Sprintf(" %s*%d%s", e.Address, e.EffectiveWeight, e.Out)
		}
	}
	return out
}

// locality returns the one with the given zone.
func (f *fleet) locality(zone string) *locality {
	for _, l := range f.localities {
		if l.zone == zone {
			return l
		}
	}
	panic(fmt.Sprintf("demo: no zone %q", zone))
}

// served returns the number of RPCs answered by each of a locality's backends, and the total.
func (l *locality) served(c map[string]int64) (each []int64, all int64) {
	for _, b := range l.backends {
		n := c[b.Addr().String()]
		each = append(each, n)
		all += n
	}
	return each, all
}

// atPriority returns the number of RPCs answered by the localities of a priority.
func (f *fleet) atPriority(p uint32, c map[string]int64) (n int64) {
	for _, l := range f.localities {
		if l.priority == p {
			_, all := l.served(c)
			n += all
		}
	}
	return n
}
