// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package testplane

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xdslb/xdslb/xds/xdstest"
)

func request(t, version, nonce string, names ...string) *discoveryv3.DiscoveryRequest {
	return &discoveryv3.DiscoveryRequest{TypeUrl: t, VersionInfo: version, ResponseNonce: nonce, ResourceNames: names}
}

// first makes req the first of its stream.
func first(req *discoveryv3.DiscoveryRequest) *discoveryv3.DiscoveryRequest {
	req.Node = &corev3.Node{
		Id: "node", UserAgentName: "test",
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: "1"},
		ClientFeatures:       []string{"envoy.lb.does_not_support_overprovisioning"},
	}
	return req
}

func nack(req *discoveryv3.DiscoveryRequest, why string) *discoveryv3.DiscoveryRequest {
	req.ErrorDetail = &statuspb.Status{Code: 3, Message: why}
	return req
}

func response(t, version, nonce string) *discoveryv3.DiscoveryResponse {
	return &discoveryv3.DiscoveryResponse{TypeUrl: t, VersionInfo: version, Nonce: nonce}
}

// TestChecker has each rule broken, and none: the wanted violation is that of
// the last message, and the only one.
func TestChecker(t *testing.T) {
	hello := first(request(xdstest.LDS, "", "", "a"))
	for _, tt := range []struct {
		name     string
		messages []any // requests, responses, and nil for a new stream
		want     string
	}{
		{"ACK, subscription, NACK, unsubscription", []any{hello,
			response(xdstest.LDS, "7", "1"), request(xdstest.LDS, "7", "1", "a"), request(xdstest.LDS, "7", "1", "a", "b"),
			response(xdstest.LDS, "8", "2"), nack(request(xdstest.LDS, "7", "2", "a", "b"), "bad"), request(xdstest.LDS, "7", "2", "a"), request(xdstest.LDS, "7", "2"),
		}, ""},
		{"subscription while a response is under way", []any{hello, response(xdstest.LDS, "7", "1"), request(xdstest.LDS, "", "", "a", "b"), request(xdstest.LDS, "7", "1", "a", "b")}, ""},
		{"the latest of two responses is answered", []any{hello, response(xdstest.LDS, "7", "1"), response(xdstest.LDS, "8", "2"), request(xdstest.LDS, "8", "2", "a")}, ""},
		{"the former of two responses is accepted, the latter rejected", []any{hello, response(xdstest.LDS, "7", "1"), response(xdstest.LDS, "8", "2"), nack(request(xdstest.LDS, "7", "2", "a"), "bad")}, ""},
		{"a response with the nonce of the last", []any{hello, response(xdstest.LDS, "7", "1"), request(xdstest.LDS, "7", "1", "a"), response(xdstest.LDS, "7", "1"), request(xdstest.LDS, "7", "1", "a")}, ""},
		{"version kept on a new stream", []any{hello, response(xdstest.LDS, "7", "1"), request(xdstest.LDS, "7", "1", "a"), nil, first(request(xdstest.LDS, "7", "", "a"))}, ""},
		{"types are apart", []any{hello, request(xdstest.CDS, "", "", "a"), response(xdstest.CDS, "1", "1"), response(xdstest.LDS, "2", "2"), request(xdstest.LDS, "2", "2", "a"), request(xdstest.CDS, "1", "1", "a")}, ""},

		{"no node", []any{request(xdstest.LDS, "", "", "a")}, "A27-NODE-1"},
		{"no node on the second stream", []any{hello, nil, request(xdstest.LDS, "", "", "a")}, "A27-NODE-1"},
		{"no user agent", []any{&discoveryv3.DiscoveryRequest{TypeUrl: xdstest.LDS, ResourceNames: []string{"a"}, Node: &corev3.Node{Id: "x"}}}, "A27-NODE-3"},
		{"no client features", []any{func() any { r := first(request(xdstest.LDS, "", "", "a")); r.Node.ClientFeatures = nil; return r }()}, "A27-NODE-4"},
		{"unknown type", []any{hello, request("type.googleapis.com/x", "", "", "a")}, "T-XDS-12"},
		{"wildcard of old", []any{hello, request(xdstest.CDS, "", "")}, "without names asks for everything"},
		{"wildcard", []any{first(request(xdstest.LDS, "", "", "*"))}, "asks for everything"},
		{"wildcard in xdstp", []any{first(request(xdstest.LDS, "", "", "xdstp://a/t/*"))}, "asks for everything"},
		{"empty name", []any{first(request(xdstest.LDS, "", "", ""))}, "asks for everything"},
		{"name twice", []any{first(request(xdstest.LDS, "", "", "a", "a"))}, "twice"},
		{"version out of thin air", []any{first(request(xdstest.LDS, "9", "", "a"))}, "never sent"},
		{"nonce of the last stream", []any{hello, response(xdstest.LDS, "7", "1"), request(xdstest.LDS, "7", "1", "a"), nil, first(request(xdstest.LDS, "7", "1", "a"))}, "a nonce"},
		{"nonce of another type", []any{hello, request(xdstest.CDS, "", "", "a"), response(xdstest.LDS, "7", "1"), request(xdstest.CDS, "7", "1", "a")}, "a nonce"},
		{"nonce of the past", []any{hello, response(xdstest.LDS, "7", "1"), response(xdstest.LDS, "8", "2"), request(xdstest.LDS, "8", "2", "a"), request(xdstest.LDS, "7", "1", "a")}, "a nonce"},
		{"nonce forgotten", []any{hello, response(xdstest.LDS, "7", "1"), request(xdstest.LDS, "7", "1", "a"), request(xdstest.LDS, "7", "", "a")}, "a nonce"},
		{"ACK of another version", []any{hello, response(xdstest.LDS, "7", "1"), request(xdstest.LDS, "6", "1", "a")}, `an ACK of version "7" says "6"`},
		{"NACK of the version", []any{hello, response(xdstest.LDS, "7", "1"), nack(request(xdstest.LDS, "7", "1", "a"), "bad")}, `a NACK says version "7"`},
		{"NACK forgets the version", []any{hello, response(xdstest.LDS, "7", "1"), request(xdstest.LDS, "7", "1", "a"), response(xdstest.LDS, "8", "2"), nack(request(xdstest.LDS, "", "2", "a"), "bad")}, `"7" was accepted last`},
		{"NACK without a reason", []any{hello, response(xdstest.LDS, "7", "1"), nack(request(xdstest.LDS, "", "1", "a"), "")}, "does not say why"},
		{"NACK of what was accepted", []any{hello, response(xdstest.LDS, "7", "1"), request(xdstest.LDS, "7", "1", "a"), nack(request(xdstest.LDS, "7", "1", "a"), "bad")}, "accepted before"},
		{"NACK of nothing", []any{nack(first(request(xdstest.LDS, "", "", "a")), "bad")}, "accepted before"},
		{"version changes without a response", []any{hello, response(xdstest.LDS, "7", "1"), request(xdstest.LDS, "7", "1", "a"), request(xdstest.LDS, "", "1", "a")}, `version "" after "7"`},
	} {
		var reported []string
		c := NewChecker(func(violation string) { reported = append(reported, violation) })
		s := c.Stream()
		for i, m := range tt.messages {
			switch m := m.(type) {
			case nil:
				s = c.Stream()
			case *discoveryv3.DiscoveryRequest:
				s.Request(m)
			case *discoveryv3.DiscoveryResponse:
				s.Response(m)
			}
			if i < len(tt.messages)-1 && len(reported) > 0 {
				t.Fatalf("%s: too early: %q", tt.name, reported)
			}
		}
		if tt.want == "" && len(reported) > 0 || tt.want != "" && (len(reported) != 1 || !strings.Contains(reported[0], tt.want)) {
			t.Errorf("%s: violations = %q, want one with %q", tt.name, reported, tt.want)
		}
		if got := c.Violations(); len(got) != len(reported) {
			t.Errorf("%s: Violations = %q, reported %q", tt.name, got, reported)
		}
	}
}

// TestCheckerForgets checks that neither versions nor violations pile up, and
// that the latest thousands of versions are known.
func TestCheckerForgets(t *testing.T) {
	c := NewChecker(nil)
	s := c.Stream()
	s.Request(first(request(xdstest.LDS, "", "", "a")))
	nonce := func(i int) string {
		return strings.Repeat("i", i%97) + string(rune('a'+i%7)) + strings.Repeat("x", i/97)
	}
	for i := range 3 * maxVersions {
		s.Response(response(xdstest.LDS, nonce(i), nonce(i)))
		s.Request(request(xdstest.LDS, nonce(i), nonce(i), "a"))
	}
	if n := len(c.versions[xdstest.LDS]) + len(c.old[xdstest.LDS]); n > 2*maxVersions || n < maxVersions {
		t.Errorf("%d versions are remembered", n)
	}
	if n := len(s.types[xdstest.LDS].responses); n != 1 {
		t.Errorf("%d responses are remembered, want 1", n)
	}
	if v := c.Violations(); len(v) != 0 {
		t.Fatalf("violations: %q", v)
	}
	next := c.Stream()
	next.Request(first(request(xdstest.LDS, nonce(3*maxVersions-maxVersions/2), "", "a")))
	if v := c.Violations(); len(v) != 0 {
		t.Errorf("violations: %q", v)
	}
	for range 2 * maxViolations {
		next.Request(request("x", "", ""))
	}
	if v := c.Violations(); len(v) != maxViolations {
		t.Errorf("%d violations, want %d", len(v), maxViolations)
	}
}
