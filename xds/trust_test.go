// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestTrustIsTheServers checks that fields which require a trusted server are used if the server in
// use is trusted, also when it sends the same bytes as the server before (A81).
func TestTrustIsTheServers(t *testing.T) {
	for name, features := range map[string][2]string{
		"the first is trusted":  {"trusted_xds_server", "xds_v3"},
		"the second is trusted": {"xds_v3", "trusted_xds_server"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHarness(t, Options{}, []string{serverDoc("first", features[0]), serverDoc("second", features[1])}, "")
				first, second := h.servers["first"], h.servers["second"]
				resources := targetOf("svc", 1)
				for _, m := range resources {
					if r, ok := m.(*routev3.RouteConfiguration); ok {
						r.VirtualHosts[0].Routes[0].GetRoute().HostRewriteSpecifier = &routev3.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)}
					}
				}
				first.serve(resources...)
				second.serve(resources...)
				first.refuse(errRefused)
				w := h.watch("svc")
				if got, want := w.must(t).Routes[0].AutoHostRewrite, features[1] == "trusted_xds_server"; got != want {
					t.Errorf("by the second server authorities are rewritten: %v, want %v", got, want)
				}
				first.refuse(nil)
				advance(5 * time.Minute)
				if got, want := w.must(t).Routes[0].AutoHostRewrite, features[0] == "trusted_xds_server"; got != want {
					t.Errorf("by the first server authorities are rewritten: %v, want %v", got, want)
				}
			})
		})
	}
}
