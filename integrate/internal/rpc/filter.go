// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"cmp"
	"reflect"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// HTTPFilter is integrate.HTTPFilter.
type HTTPFilter struct {
	Config, Override           string
	ParseConfig, ParseOverride func(proto.Message) (any, error)
	Intercept                  func(config, override any) (grpc.UnaryClientInterceptor, grpc.StreamClientInterceptor)
}

// filters contains the registered filters, by the names of their messages.
var filters = struct {
	mu sync.RWMutex
	m  map[string]*HTTPFilter
}{m: map[string]*HTTPFilter{}}

// RegisterHTTPFilter makes a filter available to all channels of the process. It replaces filters
// with the same messages.
func RegisterHTTPFilter(f HTTPFilter) {
	filters.mu.Lock()
	defer filters.mu.Unlock()
	filters.m[f.Config] = &f
	if f.Override != "" {
		filters.m[f.Override] = &f
	}
}

func filterOf(message string) *HTTPFilter {
	filters.mu.RLock()
	defer filters.mu.RUnlock()
	return filters.m[message]
}

// FilterType returns the description of a filter for the XdsClient, or nil if it is not registered.
func FilterType(message string) *resource.FilterType {
	f := filterOf(message)
	if f == nil {
		return nil
	}
	return &resource.FilterType{Config: f.Config, Override: f.Override, ParseConfig: f.ParseConfig, ParseOverride: f.ParseOverride}
}

// An interceptor has the interceptors of one filter. With a nil half, RPCs of that kind pass.
type interceptor struct {
	unary  grpc.UnaryClientInterceptor
	stream grpc.StreamClientInterceptor
	// session reports whether the filter is stateful session affinity, which picks implement.
	session bool
	name    string // of the filter's instance
}

// interceptorFor returns the interceptor of a filter instance for the RPCs of a route and one of
// its clusters, with the most specific override of the three levels.
func interceptorFor(f *picker.Filter, r *picker.Route, c *picker.WeightedCluster) (in interceptor) {
	o, _ := overrideOf(f, r, c)
	if o.Disabled {
		return in
	}
	if registered := filterOf(f.Type); registered != nil {
		in.unary, in.stream = registered.Intercept(f.Config, o.Config)
	} else {
		switch cfg := configOr(f.Config, o.Config).(type) {
		case *resource.Fault:
			in = faultInterceptor(cfg)
		case *resource.Session:
			in = sessionInterceptor(cfg)
		}
	}
	in.name = f.Name
	return in
}

// active reports whether there is something to intercept.
func (in *interceptor) active() bool { return in.unary != nil || in.stream != nil }

// overrideOf returns the most specific override of a filter instance, and its level. The
// listener's override can only disable the filter.
func overrideOf(f *picker.Filter, r *picker.Route, c *picker.WeightedCluster) (o resource.FilterOverride, from string) {
	for _, level := range []struct {
		overrides map[string]any
		name      string
	}{{c.Overrides, "cluster"}, {r.Overrides, "route"}, {r.HostOverrides, "virtual host"}} {
		o, found := level.overrides[f.Name].(resource.FilterOverride)
		if found && (o.Type == "" || o.Type == f.Type) { // otherwise the override belongs to another filter: only the listener has the filter's type
			return o, level.name
		}
	}
	return resource.FilterOverride{Disabled: f.Disabled}, "listener"
}

// configOr returns the override, or config if that is nil.
func configOr(config, override any) any {
	if override != nil {
		return override
	}
	return config
}

// A filterSet has the interceptors for the RPCs of a plan, by the index of their HTTP filters. Plans share
// them: a route has interceptors of its own only for the filters that it overrides, and so has an
// entry of weighted_clusters. So the memory for n filters and m routes is O(n + m), not O(n·m). The
// zero value has no filters.
type filterSet struct {
	listener *listenerFilters // nil without filters
	route    []ownFilter      // overrides of the route, by index
	cluster  []ownFilter      // overrides of the entry, which take precedence
	active   int              // filters that intercept RPCs
	sessions int              // filters that are stateful session affinity
}

// listenerFilters are the interceptors of all filters, for routes that override nothing. The overrides of
// the virtual host apply.
type listenerFilters struct {
	list   []interceptor
	byName map[string]int
}

// An ownFilter replaces the interceptor of a filter.
type ownFilter struct {
	index int
	interceptor
}

// at returns the interceptor of the filter with an index.
func (s *filterSet) at(i int) *interceptor {
	for _, own := range [...][]ownFilter{s.cluster, s.route} {
		if len(own) > 0 {
			if k, found := slices.BinarySearchFunc(own, i, func(f ownFilter, i int) int { return cmp.Compare(f.index, i) }); found {
				return &own[k].interceptor
			}
		}
	}
	return &s.listener.list[i]
}

// nextUnary returns the first interceptor for unary RPCs from index i on, or nil, and the index after it.
func (s *filterSet) nextUnary(i int) (in *interceptor, next int) {
	for n := s.len(); i < n; i++ {
		if in := s.at(i); in.unary != nil {
			return in, i + 1
		}
	}
	return nil, i
}

// nextStream is nextUnary for streams.
func (s *filterSet) nextStream(i int) (in *interceptor, next int) {
	for n := s.len(); i < n; i++ {
		if in := s.at(i); in.stream != nil {
			return in, i + 1
		}
	}
	return nil, i
}

// len returns the number of filters, or 0 if none of them intercepts RPCs.
func (s *filterSet) len() int {
	if s.active == 0 {
		return 0
	}
	return len(s.listener.list)
}

// count adds n of an interceptor to the counts.
func (s *filterSet) count(in *interceptor, n int) {
	if in.active() {
		s.active += n
	}
	if in.session {
		s.sessions += n
	}
}

// replace counts overrides in place of the interceptors so far. The caller adds them to the set.
func (s *filterSet) replace(own []ownFilter) {
	for i := range own {
		s.count(s.at(own[i].index), -1)
		s.count(&own[i].interceptor, 1)
	}
}

// A filterPlanner makes the filterSets of a configuration.
type filterPlanner struct {
	filters []picker.Filter
	sets    map[uintptr]filterSet // for routes that override nothing, by the overrides of their virtual host
	names   map[string]bool       // of filters that intercept RPCs of some route
	masked  map[*listenerFilters]*maskedFilters
}

// maskedFilters count how many routes override each of the listenerFilters.
type maskedFilters struct {
	routes int
	by     map[int]int // number of routes that override a filter, by its index
}

func newFilterPlanner(filters []picker.Filter) *filterPlanner {
	return &filterPlanner{filters, map[uintptr]filterSet{}, map[string]bool{}, map[*listenerFilters]*maskedFilters{}}
}

// forRoute returns the filterSet for the RPCs of a route to clusters without overrides.
func (p *filterPlanner) forRoute(r *picker.Route) filterSet {
	if len(p.filters) == 0 {
		return filterSet{}
	}
	s := p.forHost(r)
	own := p.own(s.listener, r.Overrides, r, &picker.WeightedCluster{})
	s.replace(own)
	s.route = own
	return s
}

// forCluster returns the filterSet for the RPCs of an entry of a route whose filterSet is s.
func (p *filterPlanner) forCluster(s filterSet, r *picker.Route, c *picker.WeightedCluster) filterSet {
	if len(p.filters) == 0 {
		return s
	}
	own := p.own(s.listener, c.Overrides, r, c)
	s.replace(own)
	s.cluster = own
	return s
}

// forHost returns the filterSet for routes of a virtual host that override nothing.
func (p *filterPlanner) forHost(r *picker.Route) filterSet {
	key := reflect.ValueOf(r.HostOverrides).Pointer()
	s, found := p.sets[key]
	if found {
		return s
	}
	s.listener = &listenerFilters{list: make([]interceptor, len(p.filters)), byName: make(map[string]int, len(p.filters))}
	for i := range p.filters {
		s.listener.list[i] = interceptorFor(&p.filters[i], &picker.Route{HostOverrides: r.HostOverrides}, &picker.WeightedCluster{})
		s.listener.byName[p.filters[i].Name] = i
		s.count(&s.listener.list[i], 1)
	}
	p.sets[key] = s
	return s
}

// own returns the interceptors of the filters that overrides name.
func (p *filterPlanner) own(l *listenerFilters, overrides map[string]any, r *picker.Route, c *picker.WeightedCluster) (own []ownFilter) {
	for name := range overrides {
		if i, found := l.byName[name]; found {
			own = append(own, ownFilter{i, interceptorFor(&p.filters[i], r, c)})
		}
	}
	slices.SortFunc(own, func(a, b ownFilter) int { return cmp.Compare(a.index, b.index) })
	return own
}

// note records the names of filters that intercept RPCs of a route with these plans.
func (p *filterPlanner) note(r *routePlans) {
	for _, plan := range r.plans() {
		s := &plan.filters
		if s.listener == nil {
			return
		}
		own := s.cluster
		if plan == r.all {
			own = s.route
			m := p.masked[s.listener]
			if m == nil {
				m = &maskedFilters{by: map[int]int{}}
				p.masked[s.listener] = m
			}
			m.routes++
			for i := range own {
				m.by[own[i].index]++
			}
		}
		for i := range own {
			if own[i].active() {
				p.names[own[i].name] = true
			}
		}
	}
}

// noted returns the names of note, sorted.
func (p *filterPlanner) noted() (names []string) {
	for l, m := range p.masked {
		for i := range l.list {
			if in := &l.list[i]; in.active() && m.by[i] < m.routes {
				p.names[in.name] = true
			}
		}
	}
	for name := range p.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
