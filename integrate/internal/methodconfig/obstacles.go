// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package methodconfig

import (
	"cmp"
	"slices"
	"strings"

	"github.com/xdslb/xdslb/picker"
)

// obstacles are the routes so far that no method config expresses for all of their RPCs. A method
// config for a later route must not be applied to RPCs of theirs with other settings.
//
// They are found by path. Otherwise a control plane could make Compile compare each pair of
// routes.
type obstacles struct {
	routes   []picker.Route // of the configuration, with the later ones
	list     []int32        // the obstacles: indexes of routes
	all      shared         // of the list
	services map[string]*members
	nodes    []pathNode
	node     []int32 // by route, the node of its path; nil before the first obstacle
}

// A pathNode has the obstacles with one path, except for paths that are deep.
type pathNode struct {
	path     string
	up       int32 // the node of the longest other path that path starts with, or -1
	exact    members
	prefixes shared
}

// members are obstacles that one method config may cover.
type members struct {
	shared
	routes []int32
}

// shared is what obstacles have in common: the number of their settings, or one of the
// constants below.
type shared int32

const (
	noRoutes shared = 0
	mixed    shared = -1 // different settings
)

func (s *shared) add(config int32) {
	if *s == noRoutes {
		*s = shared(config)
	} else if *s != shared(config) {
		*s = mixed
	}
}

// differs reports whether any of the routes has other settings.
func (s shared) differs(config int32) bool { return s != noRoutes && s != shared(config) }

// add adds an obstacle. onlyDeep reports whether only its RPCs with deep paths matter.
func (o *obstacles) add(s scope, onlyDeep bool) {
	route := int32(s.route)
	o.list = append(o.list, route)
	o.all.add(s.config)
	if onlyDeep || IsDeep(s.path) {
		return // for these RPCs gRPC looks for other services
	}
	o.index()
	n := &o.nodes[o.node[route]]
	if s.exact {
		n.exact.add(s.config)
		n.exact.routes = append(n.exact.routes, route)
	} else {
		n.prefixes.add(s.config)
	}
	if service := serviceOf(s.path); service != "" {
		m := o.services[service]
		if m == nil {
			m = &members{}
			o.services[service] = m
		}
		m.add(s.config)
		m.routes = append(m.routes, route)
	}
}

// serviceOf returns the start of a path up to its second slash, or "" without a second one.
func serviceOf(path string) string {
	if path == "" {
		return ""
	}
	if end := strings.IndexByte(path[1:], '/'); end >= 0 {
		return path[:end+2]
	}
	return ""
}

// index makes the nodes of the paths of all routes, once. O(n log n) comparisons of paths.
func (o *obstacles) index() {
	if o.node != nil {
		return
	}
	o.services, o.node = map[string]*members{}, make([]int32, len(o.routes))
	sorted := make([]int32, len(o.routes))
	for i := range sorted {
		sorted[i] = int32(i)
	}
	pathOf := func(i int32) string { return pathScope(&o.routes[i]).path }
	slices.SortFunc(sorted, func(a, b int32) int { return cmp.Compare(pathOf(a), pathOf(b)) })
	last := int32(-1)
	for _, i := range sorted {
		path := pathOf(i)
		// The paths that path starts with are the last one, or paths that the last one starts
		// with.
		for last >= 0 && !strings.HasPrefix(path, o.nodes[last].path) {
			last = o.nodes[last].up
		}
		if last < 0 || o.nodes[last].path != path {
			o.nodes = append(o.nodes, pathNode{path: path, up: last})
			last = int32(len(o.nodes) - 1)
		}
		o.node[i] = last
	}
}

// prevent reports whether a method config for s would wrongly be applied to RPCs of an obstacle.
// Either the obstacle has other settings, or it has the same retries and needs interceptors for
// its other RPCs, whose retries would multiply with gRPC's. O(len(s.path)).
func (o *obstacles) prevent(s scope) bool {
	if s.service == "" {
		return o.all.differs(s.config)
	}
	if o.node == nil {
		return false
	}
	n := o.node[s.route]
	if s.isService() {
		if m := o.services[s.path]; m != nil && m.differs(s.config) {
			return true
		}
		n = o.nodes[n].up
	} else if o.nodes[n].exact.differs(s.config) {
		return true
	}
	for ; n >= 0; n = o.nodes[n].up {
		if p := o.nodes[n].prefixes; p.differs(s.config) || s.retried && p != noRoutes {
			return true
		}
	}
	return false
}

// covered returns the obstacles to whose RPCs, except those with deep paths, a method config for
// s is applied.
func (o *obstacles) covered(s scope) []int32 {
	switch {
	case s.service == "":
		return o.list
	case o.node == nil:
	case !s.isService():
		return o.nodes[o.node[s.route]].exact.routes
	case o.services[s.path] != nil:
		return o.services[s.path].routes
	}
	return nil
}
