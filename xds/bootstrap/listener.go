// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// ListenerName returns the name of the Listener resource for the channel target
// xds://authority/target, or xds:///target if authority is empty (A47). It is the authority's
// template, or the default one, with each "%s" replaced by target. If the template is an xdstp
// name, target is percent-encoded, except for characters that RFC 3986 allows in a path. Since
// the default template is "%s", the Listener for xds:///target is "target" unless configured
// otherwise (A27-RES-1).
//
// An authority that is not in the document makes the target invalid, including the one in the
// resulting name.
func (c *Config) ListenerName(authority, target string) (string, error) {
	template := c.DefaultListenerTemplate
	if authority != "" {
		a := c.Authorities[authority]
		if a == nil {
			return "", c.unknownAuthority(authority, fmt.Sprintf("authority %q specified in dial target %q is not found in the bootstrap file", authority, "xds://"+authority+"/"+target))
		}
		template = a.ListenerTemplate
	}
	if target == "" && strings.Contains(template, "%s") {
		return "", fmt.Errorf("xdslb: dial target %q has no service: write xds:///<service>", "xds://"+authority+"/")
	}
	if strings.HasPrefix(template, xdstp) {
		target = percentEncode(target, pathChars)
	}
	name := strings.ReplaceAll(template, "%s", target)
	if _, err := c.ServersFor(name); err != nil {
		return "", err
	}
	return name, nil
}

// ServersFor returns the fallback chain of the servers for a resource name: for
// xdstp://authority/type/id the servers of the authority, which must be in the document,
// otherwise the top-level ones (A47).
//
// A name that starts like an xdstp name but lacks type or id belongs to no authority. It is
// treated as an old-style name, as in grpc-go.
func (c *Config) ServersFor(resource string) ([]*Server, error) {
	authority, ok := resourceAuthority(resource)
	if !ok {
		return c.Servers, nil
	}
	a := c.Authorities[authority]
	if a == nil {
		return nil, c.unknownAuthority(authority, fmt.Sprintf("authority %q of resource %q is not found in the bootstrap file", authority, resource))
	}
	return a.Servers, nil
}

func (c *Config) unknownAuthority(authority, problem string) *parseError {
	fix := fmt.Sprintf("add %q to it, or check the spelling", authority)
	if n := len(c.Authorities); 0 < n && n <= 8 {
		fix += fmt.Sprintf("; it has %q", slices.Sorted(maps.Keys(c.Authorities)))
	}
	return &parseError{Source: c.Source, Path: "$.authorities", Problem: problem, Fix: fix}
}

const xdstp = "xdstp:"

// resourceAuthority returns the authority of a well-formed xdstp name, which is empty in
// xdstp:///type/id.
func resourceAuthority(name string) (authority string, ok bool) {
	rest, ok := strings.CutPrefix(name, xdstp)
	if !ok {
		return "", false
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, _, _ = strings.Cut(rest, "?")
	if r, ok := strings.CutPrefix(rest, "//"); ok {
		authority, rest, _ = strings.Cut(r, "/")
	} else {
		rest = strings.TrimPrefix(rest, "/")
	}
	typ, id, _ := strings.Cut(rest, "/")
	if typ == "" || id == "" {
		return "", false
	}
	if decoded, err := url.PathUnescape(authority); err == nil {
		authority = decoded
	}
	return authority, true
}

// authority reads an entry of authorities.
func (p *parse) authority(entry value, name string, defaults []*Server) *authorityServers {
	const fix = "write an object; {} is enough to use the top-level servers"
	a := &authorityServers{Servers: defaults}
	if !p.isObject(entry, fix) {
		return a
	}
	p.only(entry, "xds_servers", "client_listener_resource_name_template")
	if servers := entry.field("xds_servers"); !isEmptyList(servers.v) {
		a.Servers = p.servers(servers)
	}
	prefix := xdstp + "//" + percentEncode(name, authorityChars) + "/"
	template := entry.field("client_listener_resource_name_template")
	if a.ListenerTemplate = p.text(template); a.ListenerTemplate == "" {
		a.ListenerTemplate = prefix + "envoy.config.listener.v3.Listener/%s"
	} else if !strings.HasPrefix(a.ListenerTemplate, prefix) {
		p.fail(template, fmt.Sprintf("must start with %q, the prefix of the authority's resources", prefix),
			fmt.Sprintf(`write %q, or remove the field, which means the same`, prefix+"envoy.config.listener.v3.Listener/%s"))
	}
	return a
}

// isEmptyList reports whether v is absent or an empty list. An authority without servers uses
// the top-level ones.
func isEmptyList(v any) bool {
	list, ok := v.([]any)
	return v == nil || ok && len(list) == 0
}

// Punctuation that RFC 3986 allows in a path (section 3.3, with "/") and in an authority
// (section 3.2), in addition to letters and digits.
const (
	pathChars      = "-._~!$&'()*+,;=:@/"
	authorityChars = "-._~!$&'()*+,;=:@[]"
)

// percentEncode encodes the bytes of s other than letters, digits and characters in allowed.
// url.PathEscape also encodes some allowed characters, and servers may compare names byte by
// byte.
func percentEncode(s, allowed string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(allowed, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
