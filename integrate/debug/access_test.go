// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestHosts checks that the page is served by IP address and by the names of the machine only, unless an
// option allows a name: a web site whose name resolves to the address of the process (DNS rebinding)
// sends its own name.
func TestHosts(t *testing.T) {
	machine, err := os.Hostname()
	kit.Must(t, err)
	server := &http.Server{Addr: "Debug.internal:6060"}
	for _, tt := range []struct {
		host    string
		allowed []string
		want    int
	}{
		{"localhost:6060", nil, 200}, {"localhost", nil, 200}, {"LOCALHOST.:1", nil, 200}, {"a.localhost:6060", nil, 200},
		{"127.0.0.1:6060", nil, 200}, {"10.0.0.7", nil, 200}, {"[::1]:6060", nil, 200}, {"[fe80::1]", nil, 200}, {"::1", nil, 200},
		{machine + ":6060", nil, 200}, {"debug.internal:6060", nil, 200}, {"", nil, 200},
		{"attacker.example", nil, 403}, {"attacker.example:6060", nil, 403}, {"localhost.attacker.example", nil, 403}, {"notlocalhost", nil, 403},
		{"127.0.0.1.attacker.example", nil, 403}, {"x\x1b[2J", nil, 403},
		{"orders.internal:6060", []string{"orders.internal"}, 200}, {"ORDERS.internal.", []string{"orders.internal"}, 200},
		{"x.orders.internal", []string{"orders.internal"}, 403}, {"anything", []string{"*"}, 200},
	} {
		for _, to := range []string{"/", "/json", "/explain"} {
			r := httptest.NewRequest(http.MethodGet, to, nil)
			r.Host = tt.host
			r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, server))
			w := httptest.NewRecorder()
			Options{Hosts: tt.allowed}.Handler().ServeHTTP(w, r)
			if refused := w.Code == http.StatusForbidden; refused != (tt.want == 403) {
				t.Errorf("%s of host %q with %q: %d, want %d", to, tt.host, tt.allowed, w.Code, tt.want)
			} else if refused && (!strings.Contains(w.Body.String(), "debug.Options.Hosts") || strings.Contains(w.Body.String(), "\x1b")) {
				t.Errorf("host %q: %q", tt.host, w.Body)
			}
			if w.Header().Get("Cross-Origin-Resource-Policy") != "same-origin" {
				t.Errorf("the headers are %v", w.Header())
			}
		}
	}
}

// TestOtherSites checks that requests from pages of other sites do not start to count RPCs, and that the
// page leads to the one that does.
func TestOtherSites(t *testing.T) {
	dial(t, start(t, xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(xdstest.NewBackends(t, 1, xdstest.BackendOptions{})...)})), "orders")
	for _, site := range []string{"cross-site", "same-site", "none", "same-origin", ""} {
		counts := site != "cross-site" && site != "same-site"
		var page string
		for _, to := range []string{"/json", fmt.Sprintf("/?channel=%d", integrate.Channels()[0].Number())} {
			r := httptest.NewRequest(http.MethodGet, "http://localhost"+to, nil)
			if site != "" {
				r.Header.Set("Sec-Fetch-Site", site)
			}
			w := httptest.NewRecorder()
			Handler().ServeHTTP(w, r)
			page = w.Body.String()
			if to == "/json" {
				if s := decode[Document](t, page).Channels[0]; s.Watched.IsZero() == counts {
					t.Errorf("%q: RPCs are counted since %v, want counts: %t", site, s.Watched, counts)
				}
			}
		}
		wellFormed(t, page)
		if led := strings.Contains(page, "Show and count them"); led == counts || !strings.Contains(page, "xds:///orders") {
			t.Errorf("%q: the page is %s", site, page)
		}
	}
}

// TestNoControlCharacters checks that the JSON has no control characters in names that a control plane
// chose, which a terminal would interpret.
func TestNoControlCharacters(t *testing.T) {
	w := httptest.NewRecorder()
	writeJSON(w, http.StatusOK, jsonError{"a\u009b31m\u202eb\u200bc\u007f"})
	if got := w.Body.String(); !strings.Contains(got, `a\u009b31m\u202eb\u200bc\u007f`) {
		t.Errorf("the JSON is %q", got)
	}
}
