// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"net/netip"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// TestCheckerGlobs has valid and invalid messages about collections.
func TestCheckerGlobs(t *testing.T) {
	a, m := Glob("", "a"), Member("", "a", "m")
	for _, tt := range []struct {
		name string
		say  []*discoveryv3.DeltaDiscoveryRequest
		want string // "" is no violation
	}{
		{"a collection", []*discoveryv3.DeltaDiscoveryRequest{hello(subscribe(LEDS, a))}, ""},
		{"a member that was sent", []*discoveryv3.DeltaDiscoveryRequest{hello(having(subscribe(LEDS, a), m+"=1"))}, ""},
		{"a member that was not", []*discoveryv3.DeltaDiscoveryRequest{hello(having(subscribe(LEDS, a), m+"=2"))}, "was never sent"},
		{"a member of another", []*discoveryv3.DeltaDiscoveryRequest{hello(having(subscribe(LEDS, Glob("", "b")), m+"=1"))}, "is claimed, which is not subscribed to"},
		{"a member alone", []*discoveryv3.DeltaDiscoveryRequest{hello(subscribe(LEDS, m))}, "is not the name of a glob collection"},
		{"everything", []*discoveryv3.DeltaDiscoveryRequest{hello(subscribe(LEDS, "*"))}, "is not the name of a glob collection"},
		{"twice", []*discoveryv3.DeltaDiscoveryRequest{hello(subscribe(LEDS, a, a))}, "is there twice"},
		{"of another type", []*discoveryv3.DeltaDiscoveryRequest{hello(subscribe(EDS, a))}, "asks for everything"},
	} {
		c := NewChecker(nil)
		c.Stream().DeltaResponse(sent(LEDS, "1", m+"=1"))
		st := c.Stream()
		for _, req := range tt.say {
			st.DeltaRequest(req)
		}
		if v := strings.Join(c.Violations(), "\n"); (v == "") != (tt.want == "") || !strings.Contains(v, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, v, tt.want)
		}
	}
	c := NewChecker(nil)
	c.Stream().Request(first(&discoveryv3.DiscoveryRequest{TypeUrl: LEDS, ResourceNames: []string{m}}))
	if v := c.Violations(); len(v) != 1 || !strings.Contains(v[0], "in state of the world") {
		t.Errorf("state of the world: %q", v)
	}
}

// TestGlobs checks that a stream receives the members of its subscriptions, and their changes,
// for any number of concurrent changes.
func TestGlobs(t *testing.T) {
	s := &Scripted{checker: NewChecker(nil), served: map[string]map[string]servedResource{LDS: {}, RDS: {}, CDS: {}, EDS: {}, LEDS: {}}}
	st := &DeltaStream{scriptedStream: s.newStream(), types: make(map[string]*deltaStreamType)}
	set := func(names ...string) {
		t.Helper()
		members := map[string]*endpointv3.LbEndpoint{}
		for _, n := range names {
			members[n] = LbEndpoint(Endpoint{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: uint32(1 + s.version)})
		}
		if err := s.Update(Resources{Members: members}); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(added, removed string) {
		t.Helper()
		resp := st.answerGlobsLocked()
		var names []string
		for _, r := range resp.GetResources() {
			names = append(names, r.GetName())
		}
		if got, gone := strings.Join(names, " "), strings.Join(resp.GetRemovedResources(), " "); got != added || gone != removed {
			t.Errorf("%q come and %q go, want %q and %q", got, gone, added, removed)
		}
	}
	a, b, glob := Member("", "a", "1"), Member("", "a", "2"), Glob("", "a")
	other := Member("", "b", "1")
	set(a, other)
	st.request(hello(subscribe(LEDS, glob)))
	hears(a, "")
	hears("", "")
	set(b, other)
	hears(b, "")
	s.Remove(LEDS, a, other)
	hears("", a)
	st.request(subscribe(LEDS, Glob("", "b")))
	hears("", Glob("", "b"))
	set(b)
	for range 3 * maxTouched {
		s.touchedLocked(LEDS, other)
	}
	s.Remove(LEDS, b)
	set(a)
	hears(a, b)
	st.request(unsubscribe(LEDS, glob))
	set(b)
	hears("", "")
	if v := s.Violations(); len(v) > 0 || globOf(a+"?x=y") != glob+"?x=y" {
		t.Error(v)
	}
}
