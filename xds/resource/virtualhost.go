// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// routeConfig converts a RouteConfiguration: all virtual hosts, whichever the
// target is (A36).
func (d *decoder) routeConfig(m *routev3.RouteConfiguration, p *path) *RouteConfig {
	rc := &RouteConfig{
		Name:         m.GetName(),
		VirtualHosts: make([]VirtualHost, len(m.GetVirtualHosts())),
	}
	whole := d.apart(func() { d.ignoreIn(m) })
	for i, host := range m.GetVirtualHosts() {
		v := &rc.VirtualHosts[i]
		v.Ignored = d.apart(func() { *v = d.virtualHost(host, p.dot("virtual_hosts").at(i)) })
		v.Ignored = append(v.Ignored, whole...)
	}
	return rc
}

func (d *decoder) virtualHost(m *routev3.VirtualHost, p *path) VirtualHost {
	host := VirtualHost{Name: m.GetName(), Domains: m.GetDomains()}
	for i, domain := range m.GetDomains() {
		if patternOf(domain).kind == invalidPattern {
			p.dot("domains").at(i).refuse(domain, "must be a domain, with a wildcard at most at its start or end")
		}
	}
	d.ignoreIn(m)
	defaults := hostDefaults{
		retry:     retryPolicy(m.GetRetryPolicy(), p.dot("retry_policy")),
		hedge:     hedges(m.GetHedgePolicy(), p),
		overrides: d.overrides(m.GetTypedPerFilterConfig(), p.dot("typed_per_filter_config")),
	}
	for i, route := range m.GetRoutes() {
		if r, ok := d.route(route, defaults, p.dot("routes").at(i)); ok {
			host.Routes = append(host.Routes, r)
		}
	}
	return host
}

// Match returns the virtual host that a target's authority belongs to (A28,
// T-RC-5), or nil if there is none. The kind of pattern decides first (exact,
// "*suffix", "prefix*", "*"), then the length of the pattern, then the order of
// the list. Letter case does not count, and a wildcard stands for at least one
// character. O(domains); does not allocate for names in lower case.
func (rc *RouteConfig) Match(authority string) *VirtualHost {
	authority = lower(authority)
	var (
		best   pattern
		winner *VirtualHost
	)
	for i := range rc.VirtualHosts {
		for _, domain := range rc.VirtualHosts[i].Domains {
			p := patternOf(domain)
			better := p.kind > best.kind || p.kind == best.kind && len(p.text) > len(best.text)
			if better && p.matches(authority) {
				best, winner = p, &rc.VirtualHosts[i]
			}
		}
	}
	return winner
}

// A pattern is one of a virtual host's domains.
type pattern struct {
	kind patternKind
	text string // without the wildcard
}

// patternKind enumerates the kinds of pattern. The better one is the greater.
type patternKind uint8

const (
	invalidPattern patternKind = iota
	anyPattern
	prefixPattern
	suffixPattern
	exactPattern
)

func patternOf(domain string) pattern {
	wildcard := strings.IndexByte(domain, '*')
	switch {
	case domain == "":
		return pattern{}
	case domain == "*":
		return pattern{kind: anyPattern}
	case wildcard == 0:
		return pattern{suffixPattern, domain[1:]}
	case wildcard == len(domain)-1:
		return pattern{prefixPattern, domain[:wildcard]}
	case wildcard > 0:
		return pattern{}
	}
	return pattern{exactPattern, domain}
}

// matches reports whether a name in lower case fits the pattern.
func (p pattern) matches(name string) bool {
	text := lower(p.text)
	switch p.kind {
	case anyPattern:
		return true
	case prefixPattern:
		return len(name) > len(text) && strings.HasPrefix(name, text)
	case suffixPattern:
		return len(name) > len(text) && strings.HasSuffix(name, text)
	case exactPattern:
		return name == text
	}
	return false
}

// lower returns s with ASCII letters in lower case, which is all that matters
// in names of hosts and headers.
func lower(s string) string {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if 'A' <= b[i] && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}
