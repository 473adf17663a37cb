// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestLargeResponse (LB-SEC-1): a response beyond the limit ends the stream without being read, and
// has no other effect; earlier resources stay in use, and later responses are applied.
func TestLargeResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := serving(t, Options{})
		large := wrap(endpointsAt("svc", 2))
		// An unknown field.
		large.Value = append(append(large.Value, 0xfa, 0x7f, 0x81, 0x80, 0x80, 0x20), make([]byte, maxResponse+1)...)
		streams := cp.opened()
		cp.respond(eds, &discoveryv3.DiscoveryResponse{VersionInfo: "large", Resources: []*anypb.Any{large}})
		advance(time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 1" || w.got().errs != 0 {
			t.Errorf("endpoints = %q after %d errors, want those from before", got, w.got().errs)
		}
		if n := cp.opened() - streams; n != 1 {
			t.Errorf("%d new streams, want 1", n)
		}
		cp.serve(endpointsAt("svc", 3))
		w.serves(t, "svc", "svc 3")
	})
}

// TestUnasked (LB-SEC-1): of unrequested resources nothing is kept, however
// many they are and however long their names.
func TestUnasked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := serving(t, Options{})
		before := h.entries()
		resp := &discoveryv3.DiscoveryResponse{VersionInfo: "many"}
		for i := range 100_000 {
			resp.Resources = append(resp.Resources, &anypb.Any{TypeUrl: eds.URL(), Value: fmt.Appendf([]byte{10, 8}, "%08d", i)})
		}
		resp.Resources = append(resp.Resources, wrap(endpointsAt(strings.Repeat("x", 1<<20), 2)))
		cp.respond(eds, resp)
		if req := cp.last(eds); req.VersionInfo != "many" || req.ErrorDetail != nil {
			t.Errorf("answered with %v", req)
		}
		if n := h.entries(); n != before {
			t.Errorf("%d entries, before the response there were %d", n, before)
		}
		if n := w.got().updates; n != 1 {
			t.Errorf("%d updates, want 1", n)
		}
	})
}

// TestLongNames (LB-SEC-1): a name does not make a NACK larger than a NACK may be.
func TestLongNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, _ := serving(t, Options{})
		name := strings.Repeat("x", 1<<20)
		cp.send(eds, "2", endpointsAt(name, 1), endpointsAt(name, 1))
		if n := len(cp.last(eds).GetErrorDetail().GetMessage()); n == 0 || n > 9<<10 {
			t.Errorf("the NACK has %d bytes, want some, and no more than 9 KiB", n)
		}
	})
}

// TestRegexpCaps (LB-SEC-1): a regular expression is refused for its length, and for
// the cost of compiling it.
func TestRegexpCaps(t *testing.T) {
	for _, tt := range []struct {
		name, expr string
		ok         bool
	}{
		{"short", "a+", true},
		{"long", strings.Repeat("a", 9<<10), false},
		{"repeats repetitions", strings.Repeat("((a{100}){10})", 300), false},
	} {
		r := xdstest.RouteConfig("r", xdstest.Route("", "c"))
		r.VirtualHosts[0].Routes[0].Match.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: tt.expr}}
		if _, err := resource.Decode(rds, wrap(r).Value, resource.Options{}); (err == nil) != tt.ok {
			t.Errorf("%s: error %v", tt.name, err)
		}
	}
}

// TestSecurityNamesTests: every line of SECURITY.md's tables names tests that exist.
func TestSecurityNamesTests(t *testing.T) {
	text, err := os.ReadFile("SECURITY.md")
	kit.Must(t, err)
	text, _, _ = bytes.Cut(text, []byte("\n## Costs\n")) // bench/hostile has the tests of that section
	row := regexp.MustCompile(`(?m)^\|.*\|$`)
	test := regexp.MustCompile("`([a-z/]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`")
	rows := 0
	for _, line := range row.FindAll(text, -1) {
		if bytes.HasPrefix(line, []byte("|-")) || bytes.Contains(line, []byte("| shown by |")) {
			continue
		}
		rows++
		named := test.FindAllSubmatch(line, -1)
		if len(named) == 0 {
			t.Errorf("no test is named in %s", line)
		}
		for _, n := range named {
			if !declared(t, string(n[1]), string(n[2])) {
				t.Errorf("package %s has no %s", n[1], n[2])
			}
		}
	}
	if rows < 10 {
		t.Errorf("%d rows", rows)
	}
}

// declared reports whether a test is in a package, given by its path in the module.
func declared(t *testing.T, pkg, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(pkg), "*_test.go"))
	kit.Must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		kit.Must(t, err)
		if bytes.Contains(text, []byte("\nfunc "+name+"(")) {
			return true
		}
	}
	return false
}
