// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
)

// TestPercent: only 0 and 1 are formatted as such, up to rounding errors.
func TestPercent(t *testing.T) {
	for p, want := range map[float64]string{
		0: "0 %", 1e-6: "<0.01 %", .00012: "0.012 %", .0044: "0.44 %", .05: "5 %", 1. / 3: "33.33 %", .9999: "99.99 %", .99995: ">99.99 %",
		.1 + .2 + .7 - 1e-16: "100 %", 1: "100 %", 1 + 1e-15: "100 %",
	} {
		if got := Percent(p); got != want {
			t.Errorf("Percent(%v) = %q, want %q", p, got, want)
		}
	}
}

// TestRouteTexts: the conditions, clusters and actions of a route.
func TestRouteTexts(t *testing.T) {
	half := .5
	r := &RouteStatus{
		RequestHeaders: []string{`remove "x-a"`, `set "x-b"`},
		Path:           `begins with "/"`, Conditions: []string{`header "x-canary" is "1"`}, Fraction: &half, Timeout: "1s", AppliedBy: "interceptors",
		Clusters: []RouteTarget{{Cluster: "a", Share: .25}, {Cluster: "b", Share: .75}},
		Retry: &RetryStatus{On: []string{"Unavailable"}, MaxAttempts: 2, BaseBackoff: "25ms", MaxBackoff: "250ms", OtherHosts: true,
			PerTryTimeout: "1s", RetriesTimeouts: true},
	}
	got := []string{Match(r), Destinations(r), strings.Join(Actions(r), "; "), Destinations(&RouteStatus{NotForwarding: true})}
	for i, want := range []string{
		`any path, header "x-canary" is "1", runtime fraction 50 %`, "a 25 %, b 75 %",
		"timeout 1s (applied by interceptors); retries on Unavailable, per_try_timeout: at most 2 attempts, backoff 25ms to 250ms, on other endpoints (applied by interceptors); per_try_timeout 1s; " +
			`request headers: remove "x-a", set "x-b"`,
		"none: RPCs fail",
	} {
		if got[i] != want {
			t.Errorf("text %d is %q, want %q", i, got[i], want)
		}
	}
	x := &Explanation{Routes: []RouteStatus{*r}}
	if text := x.String(); !strings.Contains(text, `header "x-canary" is "1"`) {
		t.Errorf("the explanation lacks the condition that made the route match:\n%s", text)
	}
}

// TestDropped: RPCs that are dropped do not count as RPCs that get an endpoint.
func TestDropped(t *testing.T) {
	for _, drops := range [][]DropStatus{{{Category: "all", Probability: 1}}, {{Category: "a", Probability: .25}, {Category: "b", Probability: .25}}} {
		c := RouteTarget{Cluster: "c", Share: 1, Picked: .8, Waits: .2, Status: &ClusterStatus{Leaves: []LeafStatus{{Name: "c", MaxRequests: 1, Drops: drops}}}}
		x := &Explanation{Routes: []RouteStatus{{Probability: 1, Clusters: []RouteTarget{c}}}}
		want := "    80 % are dropped\n    20 % wait\n"
		if len(drops) == 2 {
			want = "    40 % get an endpoint\n    40 % are dropped\n    20 % wait\n"
		}
		if text := x.String(); !strings.Contains(text, want) {
			t.Errorf("the explanation lacks %q:\n%s", want, text)
		}
	}
}

// TestNotes: the reason for getting no RPCs does not repeat the state.
func TestNotes(t *testing.T) {
	for _, row := range []struct {
		e    EndpointStatus
		want string
	}{
		{EndpointStatus{State: "READY", Share: 1, EffectiveWeight: 4, WeightFrom: "EDS"}, "a 100 %, READY, weight 4 (EDS)"},
		{EndpointStatus{State: "CONNECTING", Out: "CONNECTING for 3s"}, "a 0 %, CONNECTING for 3s"},
		{EndpointStatus{State: "IDLE", Out: "IDLE"}, "a 0 %, IDLE"},
		{EndpointStatus{State: "READY", Draining: true, Out: "draining: sessions only"}, "a 0 %, DRAINING, sessions only"},
		{EndpointStatus{State: "READY", Ejected: true, Out: "ejected until 12:00"}, "a 0 %, EJECTED, ejected until 12:00"},
	} {
		row.e.Address = "a"
		var text explanationText
		text.endpoint(&Located{&row.e, nil, nil, &LocalityStatus{}})
		if got := strings.TrimSpace(text.String()); got != row.want {
			t.Errorf("the endpoint is described as %q, want %q", got, row.want)
		}
	}
}
