// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"regexp"
	"time"
)

// Route is one entry of a virtual host (A28): a match and what to do with the
// RPCs that it matches. Of several routes the first match counts.
type Route struct {
	Name    string // for error messages; may be empty
	Path    StringMatch
	Headers []HeaderMatch
	// Fraction is runtime_fraction, the chance in 10⁶ that the route matches
	// an RPC that its other conditions match; nil is always.
	Fraction *uint32

	// Clusters are the destinations with their weights; a route to a single
	// cluster has one entry. Empty marks a route without a route action
	// (non_forwarding_action, A36): RPCs that it matches fail UNAVAILABLE.
	Clusters []WeightedCluster

	Hash            []HashPolicy
	AutoHostRewrite bool // A81

	// What interceptors apply; picks ignore it.
	Timeout       *time.Duration // A31: nil inherits the listener's, 0 is none
	Retry         *RetryPolicy   // A44, of the route or else of its virtual host
	Overrides     map[string]any // filter instance name to configuration (A39)
	HostOverrides map[string]any // its virtual host's, where Overrides has none
}

// WeightedCluster is one destination of a route.
type WeightedCluster struct {
	Name      string
	Weight    uint32         // ≥ 1; the sum over a route fits uint32
	Overrides map[string]any // filter instance name to configuration (A39)
}

// StringMatch is a path or string matcher (A28, A63).
type StringMatch struct {
	Kind       MatchKind
	Value      string         // for every kind but MatchRegex
	Regex      *regexp.Regexp // for MatchRegex: anchored, so that it matches whole strings only (T-RC-1)
	IgnoreCase bool           // ASCII folding; not for MatchRegex
}

// MatchKind enumerates the string matchers.
type MatchKind uint8

// The string matchers. A path uses MatchPrefix, MatchExact or MatchRegex.
const (
	MatchPrefix MatchKind = iota
	MatchExact
	MatchSuffix
	MatchContains
	MatchRegex
)

// HeaderMatch is a condition on one request header (A28, T-RC-3). Values of a
// header that is sent more than once are joined with ",". A header that is
// absent matches only where Kind is HeaderPresent and Present xor Invert is
// false.
type HeaderMatch struct {
	Name    string // lower case, never ending in -bin
	Kind    HeaderMatchKind
	String  StringMatch // HeaderString
	Start   int64       // HeaderRange: Start ≤ value < End
	End     int64
	Present bool // HeaderPresent: must be present, or must be absent
	Invert  bool
}

// HeaderMatchKind enumerates the header matchers.
type HeaderMatchKind uint8

// The header matchers.
const (
	HeaderString HeaderMatchKind = iota
	HeaderRange
	HeaderPresent
)

// HashPolicy is one entry of a route's hash policies (A42, T-RING-6).
type HashPolicy struct {
	// Header is the header to hash, lower case; empty means the channel id
	// (filter_state io.grpc.channel_id).
	Header string
	// Rewrite, if set, is applied to the header's value first; Substitution
	// is in Go's syntax (T-RC-2).
	Rewrite      *regexp.Regexp
	Substitution string
	// Terminal ends the list if a hash was found so far.
	Terminal bool
}

// RetryPolicy is A44's, with its defaults filled in.
type RetryPolicy struct {
	On          []uint32 // gRPC status codes
	MaxAttempts int      // 2 … 5
	BaseBackoff time.Duration
	MaxBackoff  time.Duration
}
