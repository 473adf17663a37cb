// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
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
	d.ignoreIn(m)
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

// Limits of regular expressions (T-SEC-2). A repetition such as (x{100}){10} takes a hundred
// times as much memory per byte as anything else a control plane can send.
const (
	maxPattern   = 8 << 10 // bytes of one expression
	maxPrograms  = 1 << 20 // size of all expressions of a resource; see programSize
	maxSANs      = 1 << 16 // size of all expressions for server names, counting duplicates
	longPattern  = "must be at most 8192 bytes long"
	largePattern = "must, with the other expressions of the resource, compile to at most 1048576 instructions"
	largeSANs    = "must, with the other expressions of the field, compile to at most 65536 instructions, where equal expressions count each time"
)

// regexMatch converts a matcher of whole strings: the expression is anchored at both ends
// (T-RC-1).
func (d *decoder) regexMatch(m *matcherv3.RegexMatcher, p *path) picker.StringMatch {
	return picker.StringMatch{Kind: picker.MatchRegex, Regex: d.compile(m, `^(?:%s)$`, p)}
}

// compile compiles m's expression, inserted into format, or returns nil. Equal expressions of a
// resource share the result, since control planes often repeat them.
func (d *decoder) compile(m *matcherv3.RegexMatcher, format string, p *path) *regexp.Regexp {
	p = p.dot("regex")
	source := p.nonEmpty(m.GetRegex())
	switch {
	case len(source) > maxPattern:
		p.refuse(source, longPattern)
		return nil
	case d.size > maxPrograms: // too much has been parsed already
		return nil
	}
	text := fmt.Sprintf(format, source)
	if re := d.regexps[text]; re != nil {
		return re
	}
	// The expression must be valid on its own: "a)|(?:b" is not, although it would be between
	// the anchors.
	tree, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		p.refuse(source, "must be a regular expression: "+reason(err))
		return nil
	}
	if d.size += programSize(tree); d.size > maxPrograms {
		p.refuse(source, largePattern)
		return nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		// It may quote up to its end, and then also the text that follows it in format.
		if ended, e := regexp.Compile(fmt.Sprintf(format, source+`\E`)); e == nil {
			re, err = ended, nil
		}
	}
	if err != nil {
		p.refuse(source, "must be a regular expression: "+reason(err))
		return nil
	}
	if d.regexps == nil {
		d.regexps = make(map[string]*regexp.Regexp)
	}
	d.regexps[text] = re
	return re
}

// sanMatches converts matchers for the names in a server's certificate. Each matcher is applied
// to each name in a handshake, so the size counts duplicates.
func (d *decoder) sanMatches(list []*matcherv3.StringMatcher, p *path) (matches []picker.StringMatch) {
	size := 0
	for i, m := range list {
		match := d.stringMatch(m, p.at(i))
		if match.Regex != nil {
			if tree, err := syntax.Parse(match.Regex.String(), syntax.Perl); err == nil {
				size += programSize(tree)
			}
		}
		if size > maxSANs {
			p.at(i).fail(largeSANs)
			return nil
		}
		matches = append(matches, match)
	}
	return matches
}

// reason returns the error of an expression without the expression itself.
func reason(err error) string {
	var e *syntax.Error
	if errors.As(err, &e) {
		return e.Code.String()
	}
	return err.Error()
}

// programSize returns an upper bound for the instructions and rune ranges of a compiled
// expression. It is O(size of the tree), which the parser keeps proportional to the
// expression's length, and does not overflow, since the parser rejects repetitions of more than
// a thousand times in total.
func programSize(re *syntax.Regexp) int {
	n := 2 + len(re.Rune)
	for _, sub := range re.Sub {
		n += programSize(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min+1, re.Max)
	}
	return n
}
