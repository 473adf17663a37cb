// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"strings"
	"testing"
)

// The bootstrap of gRFC A47, section "Example: Multiple Authorities", with
// "project_id=1234" for a name that is not of this authority's default shape.
const federation = `{
	"xds_servers": [{"server_uri": "xds-server.authority.com", "channel_creds": [{"type": "insecure"}]}],
	"client_default_listener_resource_name_template": "xdstp://xds.authority.com/envoy.config.listener.v3.Listener/grpc/client/%s?project_id=1234",
	"authorities": {
		"xds.authority.com": {"client_listener_resource_name_template": "xdstp://xds.authority.com/envoy.config.listener.v3.Listener/grpc/client/%s?project_id=1234"},
		"xds.other.com": {"xds_servers": [{"server_uri": "xds-server.other.com", "channel_creds": [{"type": "insecure"}]}]},
		"[::1]:8 0": {}
	}
}`

// A47, A27-RES-1, A27-RES-2: which resource and which servers a target leads
// to, or why it leads nowhere.
func TestListenerName(t *testing.T) {
	plain := minimal("top")
	template := func(s string) string {
		return strings.TrimSuffix(plain, "}") + `, "authorities": {"auth": {}, "": {}}, "client_default_listener_resource_name_template": "` + s + `"}`
	}
	for _, tt := range []struct {
		config, authority, target string
		name, server              string
		err                       string // part of it
	}{
		{plain, "", "server.example.com", "server.example.com", "top", ""},
		{plain, "", "server.example.com:123", "server.example.com:123", "top", ""},
		{plain, "", "a/b c%", "a/b c%", "top", ""},
		{plain, "xds.authority.com", "server.example.com", "", "",
			`authority "xds.authority.com" specified in dial target "xds://xds.authority.com/server.example.com" is not found in the bootstrap file`},
		{plain, "", "", "", "", `dial target "xds:///" has no service`},
		{federation, "", "server.example.com", "xdstp://xds.authority.com/envoy.config.listener.v3.Listener/grpc/client/server.example.com?project_id=1234", "xds-server.authority.com", ""},
		{federation, "xds.authority.com", "server.example.com", "xdstp://xds.authority.com/envoy.config.listener.v3.Listener/grpc/client/server.example.com?project_id=1234", "xds-server.authority.com", ""},
		{federation, "xds.other.com", "server.other.com", "xdstp://xds.other.com/envoy.config.listener.v3.Listener/server.other.com", "xds-server.other.com", ""},
		{federation, "[::1]:8 0", "[::1]:80", "xdstp://[::1]:8%200/envoy.config.listener.v3.Listener/%5B::1%5D:80", "xds-server.authority.com", ""},
		{federation, "xds.third.com", "a", "", "", `it has ["[::1]:8 0" "xds.authority.com" "xds.other.com"]`},
		{federation, "xds.other.com", "", "", "", `dial target "xds://xds.other.com/" has no service`},

		// Only templates that are xdstp names encode.
		{template("%s/%s"), "", "[::1]:80", "[::1]:80/[::1]:80", "top", ""},
		{template("xdstp://auth/t/%s"), "", "[::1]:80", "xdstp://auth/t/%5B::1%5D:80", "top", ""},
		{template("xdstp://auth/t/%s"), "", "a/b:c@d!$&'()*+,;=-._~", "xdstp://auth/t/a/b:c@d!$&'()*+,;=-._~", "top", ""},
		{template("xdstp://auth/t/%s"), "", "ü?#%", "xdstp://auth/t/%C3%BC%3F%23%25", "top", ""},
		{template("xdstp://auth/t/%s?x=%s"), "", "a", "xdstp://auth/t/a?x=a", "top", ""},
		{template("constant"), "", "", "constant", "top", ""},
		{template("XDSTP://%s"), "", "[", "XDSTP://[", "top", ""},

		// The resulting name has the last word on the authority.
		{template("xdstp:///t/%s"), "", "a", "xdstp:///t/a", "top", ""},
		{template("xdstp:t/%s"), "", "a", "xdstp:t/a", "top", ""},
		{template("xdstp://nobody/t/%s"), "", "a", "", "", `authority "nobody" of resource "xdstp://nobody/t/a" is not found in the bootstrap file`},
		// Without type and id it is not a name that could have one.
		{template("xdstp://nobody/%s"), "", "0.0.0.0:8080", "xdstp://nobody/0.0.0.0:8080", "top", ""},
	} {
		c := mustParse(t, tt.config)
		name, err := c.ListenerName(tt.authority, tt.target)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("ListenerName(%q, %q) = %q, %v; want error %s", tt.authority, tt.target, name, err, tt.err)
			}
			continue
		}
		if err != nil || name != tt.name {
			t.Errorf("ListenerName(%q, %q) = %q, %v; want %q", tt.authority, tt.target, name, err, tt.name)
			continue
		}
		servers, err := c.ServersFor(name)
		if err != nil || servers[0].URI != tt.server {
			t.Errorf("ServersFor(%q) = %v, %v; want %s", name, servers, err, tt.server)
		}
	}
}

func TestResourceAuthority(t *testing.T) {
	for _, tt := range []struct {
		name, authority string
		ok              bool
	}{
		{"", "", false},
		{"a", "", false},
		{"xdstp:", "", false},
		{"xdstp://", "", false},
		{"xdstp://a", "", false},
		{"xdstp://a/t", "", false},
		{"xdstp://a/t/", "", false},
		{"xdstp://a//i", "", false},
		{"xdstp://a?x=/t/i", "", false},
		{"xdstp://a/t?x=/i", "", false},
		{"xdstp://a/t#/i", "", false},
		{"xdstp://a/t/i", "a", true},
		{"xdstp://a/t/i/j?k=v#d", "a", true},
		{"xdstp:///t/i", "", true},
		{"xdstp:/t/i", "", true},
		{"xdstp:t/i", "", true},
		{"xdstp://a%20b/t/i", "a b", true},
		{"xdstp://a%2/t/i", "a%2", true},
		{"http://a/t/i", "", false},
	} {
		if authority, ok := resourceAuthority(tt.name); authority != tt.authority || ok != tt.ok {
			t.Errorf("resourceAuthority(%q) = %q, %v; want %q, %v", tt.name, authority, ok, tt.authority, tt.ok)
		}
	}
}

// Errors of a target are reported like errors of a document.
func TestUnknownAuthority(t *testing.T) {
	c := mustParse(t, federation)
	_, err := c.ServersFor("xdstp://xds.authority.community/t/i")
	var e *parseError
	if !errors.As(err, &e) || e.Path != "$.authorities" || e.Source != "test" || e.Fix == "" {
		t.Errorf("ServersFor an unknown authority: %#v", err)
	}
}
