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

// This file determines the origin of RPCs, for policies that depend on zones: the locality of the
// client is in the bootstrap, and the zones of the local cluster are in the EDS resource that
// TargetOptions.LocalCluster names.

// originLocked returns the origin of RPCs to a cluster and its arrival, nil if the policy does not
// need it. If it does, the cluster depends on the EDS resource of the local cluster.
func (m *dependencyManager) originLocked(c *resource.Cluster) (*picker.Origin, receiveTime) {
	if c.Policy.ZoneAware == nil {
		return nil, nil
	}
	var of *resource.Endpoints
	var err error
	var at receiveTime
	name, made := m.key.options.LocalCluster, &m.shared.origin
	if name != "" {
		e := m.cache.entryLocked(resource.EndpointsType, name) // patches of endpoints do not affect it
		m.useEntryLocked(e)
		made = &e.made.origin
		of, _ = e.value.(*resource.Endpoints)
		at = e.updated
		if err = e.err; err != nil {
			err = m.core.withNodeID(err)
		}
	}
	text := ""
	if of == nil && err != nil {
		text = err.Error()
	}
	if o := *made; o == nil || o.of != of || o.err != text {
		*made = &origin{of, text, newOrigin(m.core.node.GetLocality(), name, of, err)}
	}
	return (*made).value, at
}

// optional reports whether a resource is the EDS resource of the local cluster, for which no target waits.
func (m *dependencyManager) optional(e *entry) bool {
	return e.key == entryKey{resource.EndpointsType, resource.CanonicalName(m.key.options.LocalCluster)}
}

// newOrigin counts the zones of a fleet in its first priority, the only priority that Envoy
// uses too. err is the final reason why there are no endpoints, if any. O(endpoints).
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
			zone := picker.ZoneSize{ID: l.ID}
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
		o.Err = fmt.Errorf("EDS resource %q has no healthy endpoint in the client's zone (region %q, zone %q, sub_zone %q) with a weight",
			name, o.Locality.Region, o.Locality.Zone, o.Locality.SubZone)
	}
	return o
}

func localityOf(l *corev3.Locality) picker.LocalityID {
	return picker.LocalityID{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()}
}
