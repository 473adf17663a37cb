// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// listener converts a Listener. For a socket listener only the name is read: it is for servers,
// and clients do not validate it.
func (d *decoder) listener(m *listenerv3.Listener, p *path) *Listener {
	l := &Listener{Name: p.dot("name").nonEmpty(m.GetName())}
	if m.GetApiListener() == nil {
		l.Socket = true
		return l
	}
	p = p.dot("api_listener").dot("api_listener")
	packed := m.GetApiListener().GetApiListener()
	rest, routes := inlineRoutes(packed.GetValue())
	hcm := new(hcmv3.HttpConnectionManager)
	if !unpack(&anypb.Any{TypeUrl: packed.GetTypeUrl(), Value: rest}, hcm, p) { // A27-LIS-1
		return l
	}
	d.ignoreIn(hcm)
	switch rds, ok := hcm.GetRouteSpecifier().(*hcmv3.HttpConnectionManager_Rds); { // A27-LIS-2
	case routes != nil:
		l.RouteConfig = d.routeConfig(routes, p.dot("route_config"))
	case ok:
		p := p.dot("rds")
		p.dot("config_source").adsOrSelf(rds.Rds.GetConfigSource()) // A27-LIS-3
		l.RouteConfigName = p.dot("route_config_name").nonEmpty(rds.Rds.GetRouteConfigName())
	default:
		p.fail("must have rds or route_config")
	}
	l.MaxStreamDuration = p.dot("common_http_protocol_options").dot("max_stream_duration").
		duration(hcm.GetCommonHttpProtocolOptions().GetMaxStreamDuration())
	l.Filters = d.filters(hcm.GetHttpFilters(), p.dot("http_filters"))

	// A41 requires clients to reject these as well, so that a Listener has the same meaning for
	// clients and servers.
	if n := hcm.GetXffNumTrustedHops(); n != 0 {
		p.dot("xff_num_trusted_hops").refuse(n, "must be 0")
	}
	if len(hcm.GetOriginalIpDetectionExtensions()) != 0 {
		p.dot("original_ip_detection_extensions").fail("must be empty")
	}
	return l
}

// The fields of HttpConnectionManager's oneof route_specifier.
const (
	tagRDS          = 3<<3 | bytesType
	tagRouteConfig  = 4<<3 | bytesType
	tagScopedRoutes = 31<<3 | bytesType
)

// inlineRoutes returns an HttpConnectionManager without its route_config, and the route_config,
// or nil if its route_specifier is another one: the last field of a oneof wins.
func inlineRoutes(hcm []byte) (rest, routes []byte) {
	for r := (reader{rest: hcm}); r.next(); {
		switch r.tag {
		case tagRouteConfig:
			routes = merge(routes, r.bytes)
		case tagRDS, tagScopedRoutes:
			routes = nil
		}
	}
	rest, _ = without(hcm, tagRouteConfig)
	return rest, routes
}

// Fields of messages that are decoded one element at a time. The structs of protobuf take some
// 400 bytes for each byte of a dense message, and would otherwise all be live at once.
const (
	tagVirtualHosts = 2<<3 | bytesType // of RouteConfiguration
	tagRoutes       = 3<<3 | bytesType // of VirtualHost
)

// routeConfig decodes and converts a RouteConfiguration with all virtual hosts, regardless of
// the target (A36). It returns nil if the bytes are not a RouteConfiguration.
func (d *decoder) routeConfig(value []byte, p *path) *RouteConfig {
	rest, n := without(value, tagVirtualHosts)
	m := new(routev3.RouteConfiguration)
	if !unmarshalAt(rest, m, p) {
		return nil
	}
	rc := &RouteConfig{Name: m.GetName(), VirtualHosts: make([]VirtualHost, 0, n)}
	stockPlugins(m.GetClusterSpecifierPlugins(), p)
	var headers headerLevels
	whole := d.apart(func() {
		d.ignoreIn(m)
		headers = headerLevels{global: d.headerMutations(m, p), specificWins: m.GetMostSpecificHeaderMutationsWins()}
	})
	host, hosts := new(routev3.VirtualHost), p.dot("virtual_hosts") // the message is reused for each host
	for r := (reader{rest: value}); r.next(); {
		if r.tag != tagVirtualHosts {
			continue
		}
		if d.stop() {
			return nil
		}
		var v VirtualHost
		ignored := d.apart(func() { v = d.virtualHost(r.bytes, host, headers, hosts.at(len(rc.VirtualHosts))) })
		if v.Ignored = whole; len(ignored) > 0 {
			v.Ignored = append(ignored, whole...)
		}
		rc.VirtualHosts = append(rc.VirtualHosts, v)
	}
	return rc
}

// virtualHost decodes a virtual host into m, and converts it. headers are the mutations of the
// RouteConfiguration.
func (d *decoder) virtualHost(value []byte, m *routev3.VirtualHost, headers headerLevels, p *path) VirtualHost {
	rest, routes := without(value, tagRoutes)
	if !unmarshalAt(rest, m, p) {
		return VirtualHost{}
	}
	host := VirtualHost{Name: m.GetName(), Domains: m.GetDomains()}
	for i, domain := range m.GetDomains() {
		if patternOf(domain).kind == invalidPattern {
			p.dot("domains").at(i).refuse(domain, "must be a domain, with a wildcard at most at its start or end")
		}
	}
	d.ignoreIn(m)
	headers.host = d.headerMutations(m, p)
	headers.share()
	defaults := hostDefaults{hedge: hedges(m.GetHedgePolicy(), p), headers: headers}
	if m.GetRetryPolicy() != nil {
		defaults.retry = retryPolicy(m.GetRetryPolicy(), p.dot("retry_policy"))
	}
	if len(m.GetTypedPerFilterConfig()) > 0 {
		defaults.overrides = d.overrides(m.GetTypedPerFilterConfig(), p.dot("typed_per_filter_config"))
	}
	if routes == 0 {
		return host
	}
	route, list, i := new(routev3.Route), p.dot("routes"), 0 // the message is reused for each route
	for r := (reader{rest: value}); r.next(); {
		if r.tag != tagRoutes {
			continue
		}
		if d.stop() {
			break
		}
		p := list.at(i)
		i++
		if !unmarshalAt(r.bytes, route, p) {
			continue
		}
		if converted, ok := d.route(route, defaults, p); ok {
			host.Routes = append(host.Routes, converted)
		}
	}
	return host
}

// Match returns the virtual host for a target's authority (A28, T-RC-5), or nil if there is
// none. Candidates are ordered by the kind of pattern (exact, "*suffix", "prefix*", "*"), then
// by the length of the pattern, then by the order of the list. It is case-insensitive, and a
// wildcard matches at least one character. O(domains); does not allocate for names in lower
// case.
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

// patternKind is the kind of a pattern. Better kinds are greater.
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

// matches reports whether a name in lower case matches the pattern.
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

// lower returns s with ASCII letters in lower case, which suffices for host and header names.
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
