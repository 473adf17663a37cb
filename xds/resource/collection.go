// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/xdslb/xdslb/picker"
)

// A Collection replaces the endpoints of a locality (leds_cluster_locality_config, LEDS):
// Endpoints.Priorities[Priority].Localities[Locality], which has no endpoints of its own.
type Collection struct {
	Name               string
	Priority, Locality int
	Index              int // of the locality in the resource's endpoints
}

// Refuse returns the error of a ClusterLoadAssignment whose collection is not available.
func (c *Collection) Refuse(assignment, rule string) error {
	var l problems
	l.root().dot("endpoints").at(c.Index).dot("leds_cluster_locality_config").dot("leds_collection_name").refuse(c.Name, rule)
	return l.err(EndpointsType, assignment)
}

// collection records the collection that has the endpoints of locality endpoints[i] (A95),
// which will be the last locality of its priority.
func (d *endpointsDecoder) collection(in *localityFields) {
	p := d.here().dot("leds_cluster_locality_config")
	m := new(endpointv3.LedsClusterLocalityConfig)
	if !unmarshalAt(in.leds, m, p) {
		return
	}
	p.dot("leds_config").adsOrSelf(m.GetLedsConfig())
	name := m.GetLedsCollectionName()
	if p = p.dot("leds_collection_name"); !isGlob(name) {
		p.refuse(name, "must be an xdstp name of type "+globType+" that ends in /*")
	}
	for i := range d.collections {
		if d.collections[i].Name == name {
			p.refuse(name, "must not be used by another locality")
		}
	}
	c := Collection{Name: name, Priority: int(in.priority), Index: d.i}
	if l := d.levels[in.priority]; l != nil {
		c.Locality = len(l.localities)
	}
	d.collections = append(d.collections, c)
}

const globType = "envoy.config.endpoint.v3.LbEndpoint"

// isGlob reports whether a name is the name of a glob collection of LbEndpoints (xRFC TP1):
// xdstp://authority/envoy.config.endpoint.v3.LbEndpoint/path/*, with optional ?parameters.
func isGlob(name string) bool {
	path, _, _ := strings.Cut(name, "?")
	rest, ok := strings.CutPrefix(path, "xdstp:")
	if !ok || strings.Contains(name, "#") {
		return false
	}
	if r, ok := strings.CutPrefix(rest, "//"); ok {
		_, rest, _ = strings.Cut(r, "/")
	} else {
		rest = strings.TrimPrefix(rest, "/")
	}
	typ, id, _ := strings.Cut(rest, "/")
	return typ == globType && (id == "*" || strings.HasSuffix(id, "/*"))
}

// GlobOf returns the glob collection of which a resource is a member: the last part of its path
// is replaced by *, and the parameters are unchanged. It returns "" if the name is not a valid
// member name, for example the name of a collection.
func GlobOf(member string) string {
	path, query, ok := strings.Cut(member, "?")
	i := strings.LastIndexByte(path, '/')
	if i < 0 || i+1 == len(path) || path[i+1:] == "*" {
		return ""
	}
	glob := path[:i+1] + "*"
	if ok {
		glob += "?" + query
	}
	if !isGlob(glob) {
		return ""
	}
	return glob
}

// A Member is an LbEndpoint.
type Member struct {
	Endpoint picker.Endpoint
	// Usable is false if the endpoint is excluded because of its health (A27-CLA-8). Unhealthy
	// then describes it, unless its address is invalid, and the other fields are unset.
	Usable    bool
	Unhealthy picker.Unhealthy
}

// A MemberDecoder decodes LbEndpoints. Members with equal metadata share it, within limits. The
// zero value is ready to use. It is not safe for concurrent use.
type MemberDecoder struct {
	AcceptHostnames bool // as in Options

	metadata map[string]*metadata
}

// maxSharedMetadata is the number of metadata values that a MemberDecoder caches.
const maxSharedMetadata = 1024

// Decode returns the validated form of an LbEndpoint, by the rules of DecodeEndpoints. The
// error is an *Error. O(len(value)).
func (m *MemberDecoder) Decode(name string, value []byte) (Member, error) {
	if len(m.metadata) > maxSharedMetadata {
		m.metadata = nil
	}
	d := endpointsDecoder{prev: &Endpoints{}, names: m.AcceptHostnames, i: -1, j: -1, metadata: m.metadata}
	var f endpointFields
	if !f.parse(value) {
		d.root().fail("is malformed, or contains text that is not UTF-8")
		return Member{}, d.err(LbEndpointType, name)
	}
	health, usable := f.usable()
	if !usable {
		u, _ := d.unhealthyEndpoint(&f)
		return Member{Unhealthy: u}, nil
	}
	e, _ := d.endpoint(&f, nil)
	m.metadata = d.metadata
	if err := d.err(LbEndpointType, name); err != nil {
		return Member{}, err
	}
	if more := moreAddrs(&e); len(more) > 0 && !distinct(&e) {
		d.root().dot("endpoint").fail("must not contain an address twice")
		return Member{}, d.err(LbEndpointType, name)
	}
	e.Health = health
	return Member{Endpoint: e, Usable: true}, nil
}

// distinct reports whether all addresses of e are different.
func distinct(e *picker.Endpoint) bool {
	seen := map[addrKey]bool{keyOf(e.Addr): true}
	for _, a := range moreAddrs(e) {
		if seen[keyOf(a)] {
			return false
		}
		seen[keyOf(a)] = true
	}
	return true
}
