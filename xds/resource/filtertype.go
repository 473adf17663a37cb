// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import "google.golang.org/protobuf/proto"

// A FilterType is a kind of HTTP filter (A39) that is not one of those that this
// package knows by itself.
type FilterType struct {
	// Config is the full name of the message that configures the filter in a
	// listener, Override of the one that a virtual host, a route or a weighted
	// cluster configures it with instead; the two may be the same. A filter
	// without Override cannot be overridden.
	Config, Override string
	// ParseConfig and ParseOverride check a configuration and convert it, to
	// what becomes picker.Filter.Config and FilterOverride.Config. An error has
	// the resource refused. The message is of the type named above whichever way
	// it was sent, or a *structpb.Struct: see Options.Filter.
	ParseConfig, ParseOverride func(proto.Message) (any, error)
}

// filterType is the form of FilterType whose errors have a place.
type filterType struct {
	config, override           string
	parseConfig, parseOverride func(proto.Message, *path) any // nil: no effect
}

const (
	routerType = "envoy.extensions.filters.http.router.v3.Router"
	faultType  = "envoy.extensions.filters.http.fault.v3.HTTPFault"

	admissionType   = "envoy.extensions.filters.http.admission_control.v3.AdmissionControl"
	concurrencyType = "envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency"
)

// builtin are the filters that this package knows.
var builtin = []filterType{
	{config: routerType},
	{config: faultType, override: faultType, parseConfig: parser(newFault), parseOverride: parser(newFault)},
	{
		config:   "envoy.extensions.filters.http.stateful_session.v3.StatefulSession",
		override: "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute",

		parseConfig: parseSession, parseOverride: parseSessionOverride,
	},
	// A filter of servers. Routes are for both sides, so a client has to accept
	// what routes say to it (A39).
	{override: "envoy.extensions.filters.http.rbac.v3.RBACPerRoute"},
	{config: admissionType, override: admissionType, parseConfig: parser(newAdmission), parseOverride: parser(newAdmission)},
	{config: concurrencyType, override: concurrencyType, parseConfig: parser(newConcurrency), parseOverride: parser(newConcurrency)},
}

// parser returns the form of parse that takes any message. The message is linked in, so it is
// never of another type.
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

// located makes the errors of parse problems of what is at the path.
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
