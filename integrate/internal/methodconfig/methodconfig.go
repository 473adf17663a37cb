// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package methodconfig compiles routes into gRPC's service config, as far as that can express
// them (D6). gRPC applies the timeouts and retries of a service config by itself, also to
// streams and on channels without interceptors. Interceptors apply all other settings.
//
// Routes and method configs differ in their order: the first route that matches is used, and
// the most specific method config. A route can therefore be expressed only if its path names a
// method, a service, or everything, if it has no other condition, and if no earlier route that
// cannot be expressed matches some of its RPCs with other settings. Routes that no RPC can reach,
// such as those hidden by earlier routes, are omitted. A route that cannot be expressed itself needs no interceptor if a
// later route with the same settings is expressed and covers all of its RPCs.
//
// gRPC takes the path prefix "/x/" for a service whose methods have no slash. A path with more
// parts, such as "/x/pkg.Service/Method", belongs to another service. For such paths, called
// deep here, the prefix is another route, which cannot be expressed.
package methodconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// Config is one entry of a service config.
type Config struct {
	Name        []map[string]string `json:"name"`
	Timeout     string              `json:"timeout,omitempty"`
	RetryPolicy json.RawMessage     `json:"retryPolicy,omitempty"`
}

// Compile returns the method configs for the routes, and for each route whether they express all
// of its settings. With deep, notDeep reports for which of these routes they do not express the
// settings for deep paths. O(n log n) comparisons of the paths of n routes.
func Compile(cfg *picker.Config, deep bool) (methods []Config, inServiceConfig, notDeep []bool) {
	inServiceConfig, notDeep = make([]bool, len(cfg.Routes)), make([]bool, len(cfg.Routes))
	earlier := obstacles{routes: cfg.Routes}
	configs := configNumbers{limited: ClustersWith(cfg, LimitsRetries)}
	hidden := map[string]bool{} // paths of the services and methods that methods has
	configured := false
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		c := callConfig{Timeout(cfg, r), r.Retry}
		s := scopeOf(r)
		s.retried, s.route = r.Retry != nil, i
		s.config = configs.number(c, r)
		s.named = s.named && s.config != inexpressible
		if !s.reachable() || s.named && s.service != "" && (hidden[serviceOf(s.path)] || hidden[s.path]) {
			inServiceConfig[i] = true
			continue
		}
		if !s.named || earlier.prevent(s) {
			earlier.add(s, false)
			continue
		}
		inServiceConfig[i] = true
		hidden[s.path] = true
		for _, e := range earlier.covered(s) {
			inServiceConfig[e] = true
			notDeep[e] = deep && s.isService() && cfg.Routes[e].Path.Kind != picker.MatchExact
		}
		if deep && s.isService() {
			notDeep[i] = true
			earlier.add(s, true)
		}
		configured = configured || c != callConfig{}
		m := Config{Name: []map[string]string{s.name()}, RetryPolicy: RetryPolicy(c.retry)}
		if c.timeout > 0 {
			m.Timeout = fmt.Sprintf("%.9fs", c.timeout.Seconds())
		}
		methods = append(methods, m)
		if s.service == "" {
			break // everything: no later route matches an RPC
		}
	}
	if !configured {
		methods = nil
	}
	return methods, inServiceConfig, notDeep
}

// callConfig has the settings of a route's RPCs.
type callConfig struct {
	timeout time.Duration // 0 means no timeout
	retry   *picker.RetryPolicy
}

// Timeout returns the timeout of a route (A31): its own max_stream_duration, or else the
// listener's. 0 means no timeout.
func Timeout(cfg *picker.Config, r *picker.Route) time.Duration {
	if r.Timeout != nil {
		return *r.Timeout
	}
	return cfg.MaxStreamDuration
}

// RetryPolicy returns a retry policy in the form of service configs.
func RetryPolicy(r *picker.RetryPolicy) json.RawMessage {
	if r == nil {
		return nil
	}
	js, err := json.Marshal(map[string]any{
		"maxAttempts":          r.MaxAttempts,
		"initialBackoff":       fmt.Sprintf("%.9fs", r.BaseBackoff.Seconds()),
		"maxBackoff":           fmt.Sprintf("%.9fs", r.MaxBackoff.Seconds()),
		"backoffMultiplier":    2,
		"retryableStatusCodes": r.On, // A6 allows numbers
	})
	if err != nil {
		return nil // strings and numbers always encode
	}
	return js
}

// key returns a string that differs for different configurations.
func (c callConfig) key() string { return fmt.Sprintf("%d %s", c.timeout, RetryPolicy(c.retry)) }

// configNumbers numbers settings: equal settings have equal numbers above 0.
type configNumbers struct {
	limited ClusterSet
	same    map[callConfig]int32 // the retry policies by pointer
	equal   map[string]int32
}

// inexpressible is the number of settings that no method config can express: retries that are
// limited by their cluster, or whose attempts are limited in time.
const inexpressible = 1

// number returns the number of the settings of a route. The cost is independent of the settings
// before.
func (n *configNumbers) number(c callConfig, r *picker.Route) int32 {
	if r.Retry != nil && (r.Retry.PerTryTimeout > 0 || n.limited.Serves(r)) {
		return inexpressible
	}
	if i := n.same[c]; i != 0 {
		return i
	}
	if n.same == nil {
		n.same, n.equal = map[callConfig]int32{}, map[string]int32{}
	}
	key := c.key()
	i := n.equal[key]
	if i == 0 {
		i = inexpressible + 1 + int32(len(n.equal))
		n.equal[key] = i
	}
	n.same[c] = i
	return i
}

// scope is the set of RPCs of a route, in the form of a method config if possible: both fields
// empty means all RPCs, and only method empty means a whole service.
type scope struct {
	service, method string
	named           bool   // a method config can name it, and the route has no other condition
	path            string // the known prefix of the RPCs' paths
	exact           bool   // path is all of it
	config          int32  // a number of configNumbers
	retried         bool   // config has retries
	route           int    // its index
}

// pathScope returns the scope of a route by its path alone. Only its path and exact are set.
func pathScope(r *picker.Route) scope {
	if r.Path.Kind == picker.MatchRegex || r.Path.IgnoreCase {
		return scope{}
	}
	return scope{path: r.Path.Value, exact: r.Path.Kind == picker.MatchExact}
}

func scopeOf(r *picker.Route) scope {
	s := pathScope(r)
	if r.Path.Kind == picker.MatchRegex || r.Path.IgnoreCase {
		return s
	}
	if len(r.Headers) > 0 || r.Fraction != nil && *r.Fraction < 1e6 {
		return s
	}
	service, method, slash := strings.Cut(strings.TrimPrefix(r.Path.Value, "/"), "/")
	switch {
	case r.Path.Kind == picker.MatchPrefix && (r.Path.Value == "" || r.Path.Value == "/"):
		s.named = true
	case !strings.HasPrefix(r.Path.Value, "/") || !slash || service == "" || strings.Contains(method, "/"):
	case r.Path.Kind == picker.MatchPrefix && method == "", r.Path.Kind == picker.MatchExact && method != "":
		s.named, s.service, s.method = true, service, method
	}
	return s
}

// reachable reports whether paths of RPCs, which start with a slash, may belong to the scope.
func (s scope) reachable() bool { return strings.HasPrefix(s.path, "/") || s.path == "" && !s.exact }

// isService reports whether the scope is a whole service.
func (s scope) isService() bool { return s.service != "" && s.method == "" }

// IsDeep reports whether a path has more than two parts.
func IsDeep(path string) bool { return strings.Count(path, "/") > 2 }

func (s scope) name() map[string]string {
	n := map[string]string{}
	if s.service != "" {
		n["service"] = s.service
	}
	if s.method != "" {
		n["method"] = s.method
	}
	return n
}

// A ClusterSet contains the names of the clusters of a configuration that have a property on which
// the interceptors of their routes depend.
type ClusterSet map[string]bool

// ClustersWith returns the clusters that have a property. O(clusters).
func ClustersWith(cfg *picker.Config, has func(*picker.Cluster) bool) ClusterSet {
	set := ClusterSet{}
	for _, c := range cfg.Clusters {
		if has(c) {
			set[c.Name] = true
		}
	}
	return set
}

// SameClustersWith reports whether the same clusters of two configurations have a property.
// O(clusters).
func SameClustersWith(a, b *picker.Config, has func(*picker.Cluster) bool) bool {
	return slices.EqualFunc(a.Clusters, b.Clusters, func(a, b *picker.Cluster) bool {
		return a == b || a.Name == b.Name && has(a) == has(b)
	}) || maps.Equal(ClustersWith(a, has), ClustersWith(b, has))
}

// Serves reports whether RPCs of a route may go to a cluster of the set.
func (s ClusterSet) Serves(r *picker.Route) bool {
	return len(s) > 0 && slices.ContainsFunc(r.Clusters, func(c picker.WeightedCluster) bool { return s[c.Name] })
}

// LimitsRetries reports whether the retries of a cluster's RPCs are limited. Interceptors retry
// the RPCs of its routes, since gRPC has no limit for a cluster.
func LimitsRetries(c *picker.Cluster) bool {
	return slices.ContainsFunc(c.Leaves, func(l picker.Leaf) bool { return l.Retries != nil })
}

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
