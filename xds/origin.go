// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// This file is where a client's RPCs come from, for policies that go by zones: its own
// locality is the bootstrap's, and the zones of its fleet are those of an EDS resource,
// which Options.LocalCluster names.

// origin keeps what was last made of the fleet's endpoints, for all leaves to share.
type origin struct {
	of    *resource.Endpoints
	err   string
	value *picker.Origin

	here *picker.Origin // without a fleet, for policies that do not go by it
}

// originLocked returns where RPCs to a cluster come from, nil if its policy does not ask,
// and when the latest of that arrived. The manager watches the fleet's endpoints from now
// on, if it does.
func (m *dependencyManager) originLocked(c *resource.Cluster) (*picker.Origin, arrival) {
	switch {
	case c.Policy.ZoneAware != nil:
	case c.Policy.LoadAware == nil:
		return nil, nil
	default:
		if m.c.origin.here == nil {
			m.c.origin.here = &picker.Origin{Locality: localityOf(m.c.node.GetLocality())}
		}
		return m.c.origin.here, nil
	}
	var of *resource.Endpoints
	var err error
	var at arrival
	name := m.c.opts.LocalCluster
	if name != "" {
		e := m.useLocked(resource.EndpointsType, name)
		of, _ = e.value.(*resource.Endpoints)
		at = e.updated
		if err = e.err; err != nil {
			err = m.c.withNodeID(err)
		}
	}
	text := ""
	if of == nil && err != nil {
		text = err.Error()
	}
	if o := &m.c.origin; o.value == nil || o.of != of || o.err != text {
		o.of, o.err, o.value = of, text, newOrigin(m.c.node.GetLocality(), name, of, err)
	}
	return m.c.origin.value, at
}

// optional reports whether a resource is the fleet's, which no target waits for.
func (m *dependencyManager) optional(e *entry) bool {
	return e.key == entryKey{resource.EndpointsType, canonicalName(m.c.opts.LocalCluster)}
}

// newOrigin counts the zones of a fleet in its first priority, which is the only one that
// Envoy knows too. err says why there are no endpoints, if that is final. O(endpoints).
func newOrigin(node *corev3.Locality, name string, of *resource.Endpoints, err error) *picker.Origin {
	o := &picker.Origin{Locality: localityOf(node)}
	switch {
	case o.Locality == picker.LocalityID{}:
		o.Err = errors.New("the node of the bootstrap has no locality")
		return o
	case name == "":
		o.Err = errors.New("no EDS resource is named for it (LocalCluster)")
		return o
	case of == nil:
		o.Err = err
		return o
	}
	own := false
	if len(of.Priorities) > 0 {
		for _, l := range of.Priorities[0].Localities {
			zone := picker.FleetZone{ID: l.ID}
			for _, e := range l.Endpoints.All() {
				if e.Health == picker.Healthy {
					zone.Endpoints++
					zone.Weight += uint64(e.Weight)
				}
			}
			if zone.Endpoints > 0 {
				o.Fleet = append(o.Fleet, zone)
				own = own || zone.ID == o.Locality
			}
		}
	}
	if !own {
		o.Fleet = nil
		o.Err = fmt.Errorf("EDS resource %q has no healthy endpoint in the own zone (region %q, zone %q, sub_zone %q) with a weight",
			name, o.Locality.Region, o.Locality.Zone, o.Locality.SubZone)
	}
	return o
}

func localityOf(l *corev3.Locality) picker.LocalityID {
	return picker.LocalityID{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()}
}
