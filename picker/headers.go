// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

// HeaderMutations are changes of an RPC's request headers, from one level of the routes: a weighted
// cluster, a route, a virtual host or a RouteConfiguration. Names are in lower case and never
// reserved by gRPC. Interceptors apply them; routes and hash policies use the headers before.
type HeaderMutations struct {
	Remove []string         // names; removed first
	Add    []HeaderMutation // in order
}

// HeaderMutation adds or changes a header.
type HeaderMutation struct {
	Name   string
	Value  string // decoded, if Name ends in -bin
	Action HeaderAction
}

// HeaderAction is the way in which a HeaderMutation uses existing values.
type HeaderAction uint8

// The actions of HeaderMutations, which depend on the headers before all mutations of the level
// except removals.
const (
	AppendHeader           HeaderAction = iota // adds another value
	AddHeaderIfAbsent                          // adds the value if there is none
	SetHeader                                  // replaces all values, or adds the value
	ReplaceHeaderIfPresent                     // replaces all values, if there are any
)
