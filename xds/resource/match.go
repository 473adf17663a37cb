// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/xdslb/xdslb/picker"
)

// match converts the conditions of a route (A28). It returns false if no RPC can meet them.
// Conditions that A28 does not mention (grpc, tls_context, …) are ignored.
func (d *decoder) match(m *routev3.RouteMatch, r *picker.Route, p *path) (possible bool) {
	if m == nil {
		p.fail("must be set")
		return false
	}
	d.ignoreIn(m)
	ignoreCase := m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue()
	switch path := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		r.Path = picker.StringMatch{Kind: picker.MatchPrefix, Value: path.Prefix, IgnoreCase: ignoreCase}
	case *routev3.RouteMatch_Path:
		r.Path = picker.StringMatch{Kind: picker.MatchExact, Value: path.Path, IgnoreCase: ignoreCase}
	case *routev3.RouteMatch_SafeRegex:
		r.Path = d.regexMatch(path.SafeRegex, p.dot("safe_regex"))
	default:
		p.fail("must have prefix, path or safe_regex")
	}
	possible = true
	for i, header := range m.GetHeaders() {
		h := d.headerMatch(header, p.dot("headers").at(i))
		if !strings.HasSuffix(h.Name, "-bin") {
			r.Headers = append(r.Headers, h)
			continue
		}
		// Binary headers are never visible (A28), so the condition is met either by all RPCs or
		// by no RPC.
		possible = possible && h.Kind == picker.HeaderPresent && h.Present == h.Invert
	}
	if f := m.GetRuntimeFraction(); f != nil {
		p := p.dot("runtime_fraction").dot("default_value")
		if f.GetDefaultValue() == nil {
			p.fail("must be set")
		}
		n := percentage(f.GetDefaultValue(), p).PerMillion
		r.Fraction = &n
	}
	return possible
}

// headerMatch converts a condition on a header (A28, A63, T-RC-3).
func (d *decoder) headerMatch(m *routev3.HeaderMatcher, p *path) picker.HeaderMatch {
	h := picker.HeaderMatch{
		Name:   lower(p.dot("name").nonEmpty(m.GetName())),
		Invert: m.GetInvertMatch(),
	}
	text := func(kind picker.MatchKind, value, field string) {
		if kind != picker.MatchExact {
			p.dot(field).nonEmpty(value)
		}
		h.String = picker.StringMatch{Kind: kind, Value: value}
	}
	switch s := m.GetHeaderMatchSpecifier().(type) {
	case *routev3.HeaderMatcher_ExactMatch:
		text(picker.MatchExact, s.ExactMatch, "exact_match")
	case *routev3.HeaderMatcher_PrefixMatch:
		text(picker.MatchPrefix, s.PrefixMatch, "prefix_match")
	case *routev3.HeaderMatcher_SuffixMatch:
		text(picker.MatchSuffix, s.SuffixMatch, "suffix_match")
	case *routev3.HeaderMatcher_ContainsMatch:
		text(picker.MatchContains, s.ContainsMatch, "contains_match")
	case *routev3.HeaderMatcher_SafeRegexMatch:
		h.String = d.regexMatch(s.SafeRegexMatch, p.dot("safe_regex_match"))
	case *routev3.HeaderMatcher_StringMatch:
		h.String = d.stringMatch(s.StringMatch, p.dot("string_match"))
	case *routev3.HeaderMatcher_RangeMatch:
		h.Kind = picker.HeaderRange
		h.Start, h.End = s.RangeMatch.GetStart(), s.RangeMatch.GetEnd() // an empty range matches no value
	case *routev3.HeaderMatcher_PresentMatch:
		h.Kind, h.Present = picker.HeaderPresent, s.PresentMatch
	default:
		p.fail("must have a match specifier")
	}
	return h
}

func (d *decoder) stringMatch(m *matcherv3.StringMatcher, p *path) picker.StringMatch {
	match := picker.StringMatch{IgnoreCase: m.GetIgnoreCase()}
	switch s := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		match.Kind, match.Value = picker.MatchExact, s.Exact
	case *matcherv3.StringMatcher_Prefix:
		match.Kind, match.Value = picker.MatchPrefix, p.dot("prefix").nonEmpty(s.Prefix)
	case *matcherv3.StringMatcher_Suffix:
		match.Kind, match.Value = picker.MatchSuffix, p.dot("suffix").nonEmpty(s.Suffix)
	case *matcherv3.StringMatcher_Contains:
		match.Kind, match.Value = picker.MatchContains, p.dot("contains").nonEmpty(s.Contains)
	case *matcherv3.StringMatcher_SafeRegex:
		match = d.regexMatch(s.SafeRegex, p.dot("safe_regex")) // case-sensitive (A63)
	default:
		p.fail("must have exact, prefix, suffix, contains or safe_regex")
	}
	return match
}
