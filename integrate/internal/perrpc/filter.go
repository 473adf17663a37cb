// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

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

// filters are the registered filters, by the names of their messages.
var filters = struct {
	mu sync.RWMutex
	m  map[string]*HTTPFilter
}{m: map[string]*HTTPFilter{}}

// RegisterHTTPFilter makes a filter known to all channels of the process. It
// replaces those of the same messages.
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

// FilterType is what the XdsClient asks about filters.
func FilterType(message string) *resource.FilterType {
	f := filterOf(message)
	if f == nil {
		return nil
	}
	return &resource.FilterType{Config: f.Config, Override: f.Override, ParseConfig: f.ParseConfig, ParseOverride: f.ParseOverride}
}

// interceptor is what one filter does to RPCs. A nil half lets them pass.
type interceptor struct {
	unary  grpc.UnaryClientInterceptor
	stream grpc.StreamClientInterceptor
	// session says that it is stateful session affinity, which picks take part in.
	session bool
	name    string // of the filter's instance
}

// interceptorFor returns what a filter instance does to the RPCs of a route and
// one of its clusters, by the most specific override of the three levels. false
// is nothing.
func (p *planner) interceptorFor(f *picker.Filter, r *picker.Route, c *picker.WeightedCluster) (in interceptor, ok bool) {
	var override any
	disabled := f.Disabled
	for _, level := range []map[string]any{c.Overrides, r.Overrides, r.HostOverrides} {
		o, found := level[f.Name].(resource.FilterOverride)
		if !found || o.Type != "" && o.Type != f.Type {
			continue // of another filter: only the listener knows which one the name stands for
		}
		override, disabled = o.Config, o.Disabled
		break
	}
	if disabled {
		return in, false
	}
	if registered := filterOf(f.Type); registered != nil {
		in.unary, in.stream = registered.Intercept(f.Config, override)
	} else {
		switch cfg := configOr(f.Config, override).(type) {
		case *resource.Fault:
			in = faultInterceptor(cfg)
		case *resource.Session:
			in = sessionInterceptor(cfg, r)
		case *resource.AdmissionControl:
			if cfg.Enabled {
				in = p.admissions.take(f.Name, cfg, p.before.admissions).interceptor()
			}
		case *resource.AdaptiveConcurrency:
			if cfg.Enabled {
				in = p.limitsFor(f, cfg, r, c).interceptor()
			}
		}
	}
	in.name = f.Name
	return in, in.unary != nil || in.stream != nil
}

// configOr returns what replaces a configuration, or that.
func configOr(config, override any) any {
	if override != nil {
		return override
	}
	return config
}
