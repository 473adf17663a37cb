// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/integrate/internal/rpc"
)

// HTTPFilter is a kind of HTTP filter (A39) that [RegisterHTTPFilter] adds to the built-in ones: the
// router, fault injection (A33) and stateful session affinity (A55).
//
// Control planes configure a filter in a listener's chain, with the message Config. They may
// override its configuration, with the message Override, for a virtual host, a route, or a weighted
// cluster of a route. The most specific override is used (A39).
type HTTPFilter struct {
	// Config and Override are the full names of the messages, such as "acme.filters.v1.Tenant";
	// they may be the same. Without Override the filter cannot be overridden.
	Config, Override string

	// ParseConfig and ParseOverride validate a configuration and convert it to an immutable
	// argument of Intercept. An error rejects the resource: the control plane gets its text in
	// the NACK, and the last good version stays in use. The message has the named type if the
	// program links it, even if it was sent as a TypedStruct, and otherwise it is the value of
	// the TypedStruct, a *structpb.Struct.
	ParseConfig, ParseOverride func(proto.Message) (any, error)

	// Intercept returns the interceptors for the RPCs of routes and clusters with this override. They
	// are called in the order of the chain, before anything is sent and outside of retries. A nil
	// interceptor passes RPCs on. override is nil if the filter is not overridden. Intercept is
	// called once for all routes of a target without an override, once for each override, and again
	// when routes or filters change; state that survives such changes belongs to the result of
	// ParseConfig or to the package.
	Intercept func(config, override any) (grpc.UnaryClientInterceptor, grpc.StreamClientInterceptor)
}

// RegisterHTTPFilter registers a filter for all channels of the process. It must be called
// before channels are made, usually by an init function; resources that were received earlier
// are not parsed again. A filter replaces an earlier one with the same messages, including the
// built-in filters other than the router. RegisterHTTPFilter panics if the filter lacks Config,
// ParseConfig or Intercept, or has only one of Override and ParseOverride.
//
// The registry is global because channels with the same bootstrap share one XdsClient, and the
// validity of a resource cannot depend on the channel.
func RegisterHTTPFilter(f HTTPFilter) {
	switch {
	case f.Config == "" || f.ParseConfig == nil || f.Intercept == nil:
		panic("xdslb: an HTTPFilter needs Config, ParseConfig and Intercept")
	case (f.Override == "") != (f.ParseOverride == nil):
		panic("xdslb: an HTTPFilter needs both or neither of Override and ParseOverride")
	}
	rpc.RegisterHTTPFilter(rpc.HTTPFilter(f))
}
