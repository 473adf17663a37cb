// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"maps"
	"slices"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xdslb/xdslb/picker"
)

// The HTTP filters that a client knows, by the type of their configuration.
const (
	routerType = "envoy.extensions.filters.http.router.v3.Router"
	faultType  = "envoy.extensions.filters.http.fault.v3.HTTPFault"

	// Stateful session affinity (A55) is accepted without effect. Istio sends
	// the filter as required to services that want it, and an RPC that goes to
	// any endpoint is better than a channel that fails.
	sessionType      = "envoy.extensions.filters.http.stateful_session.v3.StatefulSession"
	sessionRouteType = "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute"

	// A filter of servers. Routes are for both sides, so a client has to accept
	// what routes say to it (A39).
	rbacRouteType = "envoy.extensions.filters.http.rbac.v3.RBACPerRoute"
)

// filters converts the filter chain of a listener (A39, T-RC-8). The result
// lacks the router and the filters that have no effect.
func (d *decoder) filters(list []*hcmv3.HttpFilter, p *path) []picker.Filter {
	var (
		filters []picker.Filter
		names   = make(map[string]struct{}, len(list))
		last    string // type of the last filter that is not passed over
	)
	for i, m := range list {
		p := p.at(i)
		name := p.dot("name").nonEmpty(m.GetName())
		if _, twice := names[name]; twice && name != "" {
			p.dot("name").refuse(name, "must be unique in the list")
		}
		names[name] = struct{}{}

		cfg := unwrap(m.GetTypedConfig(), p.dot("typed_config"))
		switch cfg.kind {
		case routerType, sessionType:
		case faultType:
			fault := cfg.fault()
			if m.GetDisabled() {
				fault = &Fault{} // until a route configures it
			}
			filters = append(filters, picker.Filter{Name: name, Type: urlPrefix + faultType, Config: fault})
		default:
			if !m.GetIsOptional() {
				cfg.p.refuse(cfg.kind, "must be a supported filter, for it is not optional")
			}
			continue
		}
		if last == routerType {
			p.fail("must not be behind the router filter")
		}
		last = cfg.kind
	}
	if last != routerType {
		p.fail("must end with the router filter")
	}
	return filters
}

// overrides converts a typed_per_filter_config, and adds what is inherited and
// not overridden. Of configurations for one filter instance, that of a weighted
// cluster comes before that of the route, and that before the virtual host's
// (A39).
func (d *decoder) overrides(m map[string]*anypb.Any, inherited map[string]any, p *path) map[string]any {
	if len(m) == 0 {
		return inherited
	}
	own := maps.Clone(inherited)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		p := p.key(name)
		config, wrapper := m[name], new(routev3.FilterConfig)
		if baseName(config.GetTypeUrl()) == typeName(wrapper) {
			if !unpack(config, wrapper, p) {
				continue
			}
			p = p.dot("config")
			config = wrapper.GetConfig()
		}
		cfg := unwrap(config, p)
		switch {
		case wrapper.GetDisabled():
			// There is no saying which filter this is, but fault injection
			// is the only one that has an effect.
			own = with(own, name, &Fault{})
		case cfg.kind == faultType:
			own = with(own, name, cfg.fault())
		case cfg.kind == sessionType, cfg.kind == sessionRouteType, cfg.kind == rbacRouteType:
		case cfg.kind == routerType:
			p.fail("must not override the router filter, which has nothing to override")
		case !wrapper.GetIsOptional():
			cfg.p.refuse(cfg.kind, "must be of a supported filter, for it is not optional")
		}
	}
	return own
}

func with(m map[string]any, key string, value any) map[string]any {
	if m == nil {
		m = make(map[string]any)
	}
	m[key] = value
	return m
}

// filterConfig is the configuration of a filter, in the form of a message or of
// a JSON object.
type filterConfig struct {
	kind   string // name of the message that configures it
	any    *anypb.Any
	object *structpb.Struct
	p      *path
}

// unwrap looks into a TypedStruct, which carries a message's JSON form and its
// type URL (A39).
func unwrap(a *anypb.Any, p *path) filterConfig {
	cfg := filterConfig{kind: baseName(a.GetTypeUrl()), any: a, p: p}
	for _, m := range []interface {
		proto.Message
		GetTypeUrl() string
		GetValue() *structpb.Struct
	}{new(xdsv3.TypedStruct), new(udpav1.TypedStruct)} {
		if cfg.kind == typeName(m) && unpack(a, m, p) {
			return filterConfig{kind: baseName(m.GetTypeUrl()), object: m.GetValue(), p: p.dot("value")}
		}
	}
	return cfg
}

// fault decodes the configuration of a fault injection filter.
func (cfg filterConfig) fault() *Fault {
	m := new(faultv3.HTTPFault)
	if cfg.any != nil {
		unpack(cfg.any, m, cfg.p)
	} else if cfg.object != nil {
		text, err := protojson.Marshal(cfg.object)
		if err == nil {
			err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, m)
		}
		if err != nil {
			cfg.p.fail("cannot be read as the JSON form of " + faultType)
		}
	}
	return newFault(m, cfg.p)
}
