// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import "google.golang.org/protobuf/proto"

// A FilterType is a kind of HTTP filter (A39) that is not built into this package.
type FilterType struct {
	// Config is the full name of the message that configures the filter in a listener, and
	// Override the full name of the message for virtual hosts, routes and weighted clusters;
	// they may be the same. A filter without Override cannot be overridden.
	Config, Override string
	// ParseConfig and ParseOverride validate a configuration and convert it to
	// picker.Filter.Config and FilterOverride.Config. An error rejects the resource. The
	// message has the type named above in any encoding, or is a *structpb.Struct: see
	// Options.Filter.
	ParseConfig, ParseOverride func(proto.Message) (any, error)
}

// filterType is a FilterType whose errors have a path.
type filterType struct {
	config, override           string
	parseConfig, parseOverride func(proto.Message, *path) any // nil means no effect
}

const (
	routerType = "envoy.extensions.filters.http.router.v3.Router"
	faultType  = "envoy.extensions.filters.http.fault.v3.HTTPFault"
)

// builtin has the filters implemented by this package.
var builtin = []filterType{
	{config: routerType},
	{config: faultType, override: faultType, parseConfig: parser(newFault), parseOverride: parser(newFault)},
	{
		config:   "envoy.extensions.filters.http.stateful_session.v3.StatefulSession",
		override: "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute",

		parseConfig: parseSession, parseOverride: parseSessionOverride,
	},
	// A server-side filter. Routes are for both sides, so a client has to accept overrides of
	// it (A39).
	{override: "envoy.extensions.filters.http.rbac.v3.RBACPerRoute"},
}

// parser returns the form of parse that accepts any message. The message type is linked in, so
// other types do not occur.
func parser[M proto.Message, C any](parse func(M, *path) C) func(proto.Message, *path) any {
	return func(m proto.Message, p *path) any {
		if m, ok := m.(M); ok {
			return parse(m, p)
		}
		return nil
	}
}

// filterType returns the filter that a message configures or overrides, or nil.
func (d *decoder) filterType(message string) *filterType {
	if message == "" {
		return nil
	}
	if d.opt.Filter != nil && message != routerType {
		if t := d.opt.Filter(message); t != nil {
			return &filterType{t.Config, t.Override, located(t.ParseConfig), located(t.ParseOverride)}
		}
	}
	for i := range builtin {
		if t := &builtin[i]; message == t.config || message == t.override {
			return t
		}
	}
	return nil
}

// located reports the errors of parse at the path.
func located(parse func(proto.Message) (any, error)) func(proto.Message, *path) any {
	if parse == nil {
		return nil
	}
	return func(m proto.Message, p *path) any {
		v, err := parse(m)
		if err != nil {
			p.fail(clip(err.Error(), maxRule))
		}
		return v
	}
}
