// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"net/url"
	"testing"

	"google.golang.org/grpc/resolver"
)

// TestVerdict: which targets the variables take away from us.
func TestVerdict(t *testing.T) {
	const svc = "xds:///svc.ns:80"
	for _, tt := range []struct {
		disable, enable, target string
		ours                    bool
	}{
		{"", "", svc, true},
		{" , ", "", svc, true},
		{"", " , ", svc, true},
		{"all", "", svc, false},
		{"*", "", "xds://authority/a/b", false},
		{"TRUE", "", svc, false},
		{"1", "", svc, false},
		{"none,false,0", "", svc, true},
		{"svc.ns:80", "", svc, false},
		{"svc.ns", "", svc, true},
		{"svc.*", "", svc, false},
		{"x, *.ns:80 ", "", svc, false},
		{"xds:///svc.*", "", svc, false},
		{"xdslb:///svc.*", "", svc, true},
		{"xds://*/svc.ns:80", "", "xds://authority/svc.ns:80", false},
		{"a/*", "", "xds:///a/b", false},
		{"a*", "", "xds:///a/b", true},
		{"[", "", svc, false},
		{"[a", "svc*", svc, false},
		{"", "none", svc, false},
		{"", "all", svc, true},
		{"", "svc.*,x", svc, true},
		{"", "x", svc, false},
		{"", "x,[", svc, false},
		{"", "svc*,[", svc, true},
		{"svc*", "svc*", svc, false},
		{"x", "svc*", svc, true},
	} {
		t.Setenv(disableVariable, tt.disable)
		t.Setenv(enableVariable, tt.enable)
		u, err := url.Parse(tt.target)
		if err != nil {
			t.Fatal(err)
		}
		if v := verdictOf(resolver.Target{URL: *u}); (v.why == "") != tt.ours {
			t.Errorf("disable %q, enable %q, target %s: %q, want it ours: %v", tt.disable, tt.enable, tt.target, v.why, tt.ours)
		}
	}
}
