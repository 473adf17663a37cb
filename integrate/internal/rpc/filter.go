// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
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
