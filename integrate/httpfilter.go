// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// HTTPFilter is a kind of HTTP filter (A39) that [RegisterHTTPFilter] adds to
// those that this package has: the router, fault injection (A33), and stateful
// session affinity (A55).
//
// Control planes configure a filter in a listener's chain, with the message
// Config, and may configure it otherwise, with the message Override, for a
// virtual host, a route, or one of the clusters that a route is split between.
// Of these the last that says anything counts (A39).
type HTTPFilter struct {
	// Config and Override are the full names of the messages, such as
	// "acme.filters.v1.Tenant"; they may be the same. Without Override the
	// filter cannot be overridden.
	Config, Override string

	// ParseConfig and ParseOverride check a configuration and convert it to what
	// Intercept gets, which must not change. An error refuses the resource: the
	// control plane gets its text in the NACK, and the last good version stays in
	// force. What they get is the named message if the program has that linked
	// in, whether it was sent as itself or as a TypedStruct, and otherwise a
	// TypedStruct's value, a *structpb.Struct.
	ParseConfig, ParseOverride func(proto.Message) (any, error)

	// Intercept returns what the filter does to the RPCs of one route and
	// cluster: gRPC's own interceptors, called in the order of the chain, before
	// anything is sent and outside of retries. Nil lets RPCs pass. override is
	// nil where there is none. It is called once for each route, and again
	// whenever routes or filters change; state that has to survive that belongs
	// to the result of ParseConfig or to the package.
	Intercept func(config, override any) (grpc.UnaryClientInterceptor, grpc.StreamClientInterceptor)
}

// filterTypes are the registered filters, by the names of their messages.
var filterTypes = struct {
	mu sync.RWMutex
	m  map[string]*HTTPFilter
}{m: map[string]*HTTPFilter{}}

// RegisterHTTPFilter makes a filter known to all channels of the process. It is
// to be called before channels are made, usually by an init function; resources
// that were received before are not looked at again. A filter for the messages of
// an earlier one replaces it, also if that is built in, but for the router. It
// panics if the filter lacks Config, ParseConfig or Intercept, or has only one of
// Override and ParseOverride.
//
// The registry is the process's because the resources are: channels with the
// same bootstrap share one XdsClient (D4), and whether a resource is valid cannot
// depend on which of them asks.
func RegisterHTTPFilter(f HTTPFilter) {
	switch {
	case f.Config == "" || f.ParseConfig == nil || f.Intercept == nil:
		panic("xdslb: an HTTPFilter needs Config, ParseConfig and Intercept")
	case (f.Override == "") != (f.ParseOverride == nil):
		panic("xdslb: an HTTPFilter needs both or neither of Override and ParseOverride")
	}
	filterTypes.mu.Lock()
	defer filterTypes.mu.Unlock()
	filterTypes.m[f.Config] = &f
	if f.Override != "" {
		filterTypes.m[f.Override] = &f
	}
}

func filterOf(message string) *HTTPFilter {
	filterTypes.mu.RLock()
	defer filterTypes.mu.RUnlock()
	return filterTypes.m[message]
}

// filterType is what the XdsClient asks about filters.
func filterType(message string) *resource.FilterType {
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
}

// interceptorFor returns what a filter instance does to the RPCs of a route and
// one of its clusters, by the most specific override of the three levels. false
// is nothing.
func interceptorFor(f *picker.Filter, r *picker.Route, c *picker.WeightedCluster) (in interceptor, ok bool) {
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
			in = injector(cfg)
		case *resource.Session:
			in = affinity(cfg, r)
		}
	}
	return in, in.unary != nil || in.stream != nil
}

// configOr returns what replaces a configuration, or that.
func configOr(config, override any) any {
	if override != nil {
		return override
	}
	return config
}
