// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "github.com/xdslb/xdslb/picker/persistent"

// LocalityID names a locality. It is comparable and can key a map.
type LocalityID struct {
	Region, Zone, SubZone string
}

// Locality is a group of endpoints that shares one weight.
type Locality struct {
	ID        LocalityID
	Weight    uint32 // ≥ 1; the sum over a priority fits uint32 (A27-CLA-3)
	Endpoints EndpointList
	Metadata  Metadata // nil in most cases
}

// Same reports whether two localities are equal and share their lists: O(1).
func (l Locality) Same(o Locality) bool {
	return l.ID == o.ID && l.Weight == o.Weight && l.Endpoints.Same(o.Endpoints) && persistent.SameMap(l.Metadata, o.Metadata)
}

// An EndpointList is the list of endpoints of a locality. It is immutable. A version that
// differs in one endpoint copies at most 85 endpoints.
type EndpointList = persistent.List[Endpoint]

// ListOf returns a list of the given endpoints.
func ListOf(endpoints ...Endpoint) EndpointList { return persistent.Of(endpoints...) }
