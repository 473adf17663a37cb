// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"regexp"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/xdslb/xdslb/picker"
)

// maxSubstitution is the maximum length of the substitution of a hash policy, in bytes. Each pick applies
// it (T-SEC-2).
const maxSubstitution = 1 << 10

// hashPolicies converts the hash policies of a route (A42, T-RING-6). Policies that never yield
// a hash are removed. If a removed policy was terminal, the preceding policy becomes terminal,
// since the list ends there if a hash has been produced.
func (d *decoder) hashPolicies(list []*routev3.RouteAction_HashPolicy, p *path) []picker.HashPolicy {
	var policies []picker.HashPolicy
	for i, m := range list {
		h, ok := d.hashPolicy(m, p.at(i))
		switch {
		case ok:
			h.Terminal = m.GetTerminal()
			policies = append(policies, h)
			continue
		case m.GetTerminal() && len(policies) > 0:
			policies[len(policies)-1].Terminal = true
		}
		d.ignore("hash_policy by " + hashSpecifierOf(m))
	}
	return policies
}

// hashSpecifierOf returns the name of a hash policy's specifier.
func hashSpecifierOf(m *routev3.RouteAction_HashPolicy) string {
	if h := m.GetHeader(); h != nil {
		return "a binary header"
	}
	r := m.ProtoReflect()
	if f := r.WhichOneof(r.Descriptor().Oneofs().ByName("policy_specifier")); f != nil {
		return string(f.Name())
	}
	return "an unknown specifier"
}

// hashPolicy returns false if the policy never yields a hash.
func (d *decoder) hashPolicy(m *routev3.RouteAction_HashPolicy, p *path) (h picker.HashPolicy, ok bool) {
	switch m.GetPolicySpecifier().(type) {
	case *routev3.RouteAction_HashPolicy_FilterState_:
		return h, m.GetFilterState().GetKey() == "io.grpc.channel_id"
	case *routev3.RouteAction_HashPolicy_Header_:
		p = p.dot("header")
		h.Header = lower(p.dot("header_name").nonEmpty(m.GetHeader().GetHeaderName()))
		if rewrite := m.GetHeader().GetRegexRewrite(); rewrite != nil {
			p = p.dot("regex_rewrite")
			h.Rewrite = d.compile(rewrite.GetPattern(), "%s", p.dot("pattern"))
			if n := len(rewrite.GetSubstitution()); n > maxSubstitution {
				p.dot("substitution").failf("must be at most %d bytes long (it has %d)", maxSubstitution, n)
				return h, false
			}
			var valid bool
			if h.Substitution, valid = substitution(rewrite.GetSubstitution(), h.Rewrite); !valid {
				d.ignore("hash_policy regex_rewrite with a substitution that is invalid for its pattern")
				h.Rewrite, h.Substitution = nil, ""
			}
		}
		return h, !strings.HasSuffix(h.Header, "-bin")
	}
	return h, false
}

// substitution converts RE2's syntax to Go's: \1 is ${1}, \\ is one backslash, and $ is $$,
// since Go interprets $1 and $name as groups (T-RC-2). re is nil if it could not be compiled.
// valid is false for a backslash before any other character and for a group that re lacks: RE2
// then replaces nothing.
func substitution(s string, re *regexp.Regexp) (converted string, valid bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '$':
			b.WriteString("$$")
		case s[i] != '\\':
			b.WriteByte(s[i])
		case i+1 < len(s) && s[i+1] == '\\':
			b.WriteByte('\\')
			i++
		case i+1 < len(s) && '0' <= s[i+1] && s[i+1] <= '9':
			i++
			group := int(s[i] - '0')
			if re != nil && group > re.NumSubexp() {
				return "", false
			}
			b.WriteString("${" + strconv.Itoa(group) + "}")
		default:
			return "", false
		}
	}
	return b.String(), true
}
