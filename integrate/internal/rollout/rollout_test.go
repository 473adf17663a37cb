// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"net/url"
	"testing"

	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/report"
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
		t.Setenv(Disable, tt.disable)
		t.Setenv(Enable, tt.enable)
		u, err := url.Parse(tt.target)
		if err != nil {
			t.Fatal(err)
		}
		if v := verdictOf(resolver.Target{URL: *u}); (v == nil) != tt.ours {
			t.Errorf("disable %q, enable %q, target %s: %+v, want it ours: %v", tt.disable, tt.enable, tt.target, v, tt.ours)
		}
	}
}

// TestVerdictSays: a verdict names the variable, its value and the pattern that decided, and
// the way back is one.
func TestVerdictSays(t *testing.T) {
	u, err := url.Parse("xds:///svc.ns:80")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		disable, enable string
		want            report.RolloutStatus
		why             string
	}{
		{"x, svc.*", "", report.RolloutStatus{Variable: Disable, Value: "x, svc.*", Pattern: "svc.*", Malformed: false, Forward: "take the pattern out of XDSLB_DISABLE, and restart the program"}, `XDSLB_DISABLE has "svc.*"`},
		{"[,x", "", report.RolloutStatus{Variable: Disable, Value: "[,x", Pattern: "[", Malformed: true, Forward: "fix or remove the pattern in XDSLB_DISABLE, and restart the program"}, `XDSLB_DISABLE has the malformed pattern "["`},
		{"[,svc*", "", report.RolloutStatus{Variable: Disable, Value: "[,svc*", Pattern: "svc*", Malformed: false, Forward: "take the pattern out of XDSLB_DISABLE, and restart the program"}, `XDSLB_DISABLE has "svc*"`},
		{"", "x", report.RolloutStatus{Variable: Enable, Value: "x", Pattern: "", Malformed: false, Forward: `add a pattern that matches "svc.ns:80" to XDSLB_ENABLE, or unset it, and restart the program`}, `no pattern of XDSLB_ENABLE="x" matches`},
		{"", "[", report.RolloutStatus{Variable: Enable, Value: "[", Pattern: "[", Malformed: true, Forward: "fix the pattern in XDSLB_ENABLE, and restart the program"}, `XDSLB_ENABLE has the malformed pattern "["`},
	} {
		t.Setenv(Disable, tt.disable)
		t.Setenv(Enable, tt.enable)
		if v := verdictOf(resolver.Target{URL: *u}); v == nil || *v != tt.want || v.Why() != tt.why {
			t.Errorf("disable %q, enable %q: %+v, want %+v since %s", tt.disable, tt.enable, v, tt.want, tt.why)
		}
	}
}
