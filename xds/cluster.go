// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"slices"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// cluster is what a view knows of a cluster that its routes name.
type cluster struct {
	look      uint64
	readiness readiness // of what is in use; waiting if nothing is

	// What is in use: the names of the leaves, or why there are none.
	leaves []string
	err    error

	// What was made of it, and of which versions of the leaves.
	value *picker.Cluster
	parts []*picker.Leaf
}

// cluster returns a cluster as of this look. Whatever is wrong with it stays
// with it (T-WATCH-4).
func (v *view) cluster(name string) *cluster {
	c := v.clusters[name]
	if c == nil {
		c = &cluster{}
		v.clusters[name] = c
	}
	if c.look == v.look {
		return c
	}
	c.look = v.look
	leaves, r, err := flatten(name, func(name string) *entry { return v.use(resource.ClusterType, name) })
	for _, leaf := range leaves {
		r = min(r, v.leaf(leaf).readiness)
	}
	if adopt(c.readiness, r) {
		c.readiness, c.leaves, c.err = r, leaves, err
	}
	if c.readiness != waiting {
		c.assemble(name, v)
	}
	return c
}

// assemble makes the value of what is in use, unless it has not changed.
func (c *cluster) assemble(name string, v *view) {
	if c.err != nil {
		err := v.c.annotate(c.err)
		if c.value == nil || c.value.Err == nil || c.value.Err.Error() != err.Error() {
			c.value, c.parts = &picker.Cluster{Name: name, Err: err}, nil
		}
		return
	}
	same := c.value != nil && c.value.Err == nil && len(c.parts) == len(c.leaves)
	parts := make([]*picker.Leaf, len(c.leaves))
	for i, name := range c.leaves {
		parts[i] = v.leaf(name).value
		same = same && parts[i] == c.parts[i]
	}
	if same {
		return
	}
	e := v.use(resource.ClusterType, name)
	// Views may name a resource in ways that mean the same, see canonicalName.
	if e.cluster == nil || e.cluster.Name != name || !slices.Equal(e.parts, parts) {
		e.parts = parts
		e.cluster = &picker.Cluster{Name: name, Leaves: make([]picker.Leaf, len(parts))}
		for i, part := range parts {
			e.cluster.Leaves[i] = *part
		}
	}
	c.parts, c.value = e.parts, e.cluster
}

// leaf is what a view knows of a cluster that has endpoints.
type leaf struct {
	look      uint64
	readiness readiness // of what is in use; waiting if nothing is

	// What is in use: the versions of cluster and endpoints. The entry of the
	// latter may lag behind what the former names.
	cluster   *resource.Cluster
	endpoints *entry

	value *picker.Leaf
	made  madeOf
}

// madeOf is all that a leaf's value depends on; equal ones give equal values.
type madeOf struct {
	cluster   *resource.Cluster
	server    string // key of the server to report load to, if any
	endpoints any    // *resource.Endpoints or *addresses, nil if there are none
	note      string
}

// leaf returns a leaf as of this look. Its Cluster resource is in the cache.
func (v *view) leaf(name string) *leaf {
	l := v.leaves[name]
	if l == nil {
		l = &leaf{}
		v.leaves[name] = l
	}
	if l.look == v.look {
		return l
	}
	l.look = v.look
	cds := v.use(resource.ClusterType, name)
	if want, _ := cds.value.(*resource.Cluster); want != nil && want.Kind != resource.ClusterAggregate {
		endpoints := v.endpoints(want)
		if r := endpoints.readiness(); adopt(l.readiness, r) {
			l.readiness, l.cluster, l.endpoints = r, want, endpoints
		}
	}
	if l.readiness == waiting {
		return l
	}
	v.deps[l.endpoints] = v.look // which may be others than those wanted
	made := madeOf{cluster: l.cluster, endpoints: l.endpoints.value}
	if cds.from != nil && l.cluster.LoadReporting {
		made.server = cds.from.Key()
	}
	note := l.note(cds)
	if note != nil {
		note = v.c.annotate(note)
		made.note = note.Error()
	}
	if l.value == nil || l.made != made {
		if cds.leaf == nil || cds.made != made {
			cds.made, cds.leaf = made, newLeaf(made, note)
		}
		l.made, l.value = made, cds.leaf
	}
	return l
}

// endpoints returns where a cluster's endpoints come from.
func (v *view) endpoints(c *resource.Cluster) *entry {
	if c.Kind == resource.ClusterDNS {
		return v.use(dnsType, c.DNSTarget)
	}
	return v.use(resource.EndpointsType, c.EDSService)
}

// note says what is wrong with a leaf in use (A74, A88).
func (l *leaf) note(cds *entry) error {
	switch {
	case l.endpoints.err == nil:
		return cds.err
	case cds.err == nil:
		return l.endpoints.err
	}
	return fmt.Errorf("%w; %w", cds.err, l.endpoints.err)
}

// newLeaf puts cluster and endpoints together. It copies slice headers only.
func newLeaf(of madeOf, note error) *picker.Leaf {
	c := of.cluster
	l := &picker.Leaf{
		Name:        c.Name,
		Policy:      c.Policy,
		MaxRequests: c.MaxRequests,
		Outlier:     c.Outlier,
		Override:    c.Override,
		Note:        note,
	}
	if c.Kind == resource.ClusterEDS {
		l.Service = c.ServiceName
	}
	if of.server != "" {
		l.Load = picker.LoadReporting{Server: of.server, Metrics: c.Metrics}
	}
	switch endpoints := of.endpoints.(type) {
	case *resource.Endpoints:
		l.Priorities, l.Drops = endpoints.Priorities, endpoints.Drops
	case *addresses:
		l.Priorities = endpoints.priorities(c.DNSHost)
	}
	return l
}
