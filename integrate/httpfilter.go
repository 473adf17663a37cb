// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
)

// HTTPFilter is a kind of HTTP filter (A39) that [RegisterHTTPFilter] adds to
// those that this package has: the router, fault injection (A33), stateful
// session affinity (A55), admission control and adaptive concurrency.
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
	perrpc.RegisterHTTPFilter(perrpc.HTTPFilter(f))
}
