// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package statustext

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/xdslb/xdslb/integrate/report"
)

// channel returns a channel with n clusters of n endpoints. The last cluster fails, and the one before has
// an endpoint with failed RPCs, its last.
func channel(n int) *report.TargetStatus {
	s := &report.TargetStatus{Connectivity: "READY"}
	for i := range n {
		c := report.ClusterStatus{Name: fmt.Sprintf("cluster-%02d", i), State: "READY"}
		var endpoints []report.EndpointStatus
		for k := range n {
			endpoints = append(endpoints, report.EndpointStatus{Address: fmt.Sprintf("10.0.%d.%d:80", i, k), State: "READY", OK: 2})
		}
		switch i {
		case n - 1:
			c.State = "TRANSIENT_FAILURE"
		case n - 2:
			endpoints[n-1].FailedRPCs = 1
		}
		p := report.PriorityStatus{Phase: "serving", InUse: true, Localities: []report.LocalityStatus{{Zone: "a", Endpoints: endpoints}}}
		c.Leaves = []report.LeafStatus{{Name: c.Name, Policy: "edf", MaxRequests: 9, Priorities: []report.PriorityStatus{p}}}
		s.Clusters = append(s.Clusters, c)
	}
	return s
}

func write(s *report.TargetStatus, t *Text) string {
	var b strings.Builder
	t.W = &b
	t.Channel(s)
	return b.String()
}

// TestProblemsFirst checks that lists are bounded, and begin with the clusters and endpoints that have
// problems.
func TestProblemsFirst(t *testing.T) {
	for _, full := range []bool{false, true} {
		n, clusters, endpoints := 60, 12, 20
		if full {
			clusters, endpoints = 50, 8 // 400 in total
		}
		text := write(channel(n), &Text{Full: full})
		if got := strings.Count(text, "\n  cluster "); got != clusters || strings.Count(text, ":80 ") != clusters*endpoints {
			t.Errorf("full %t: %d clusters, %d endpoints", full, got, strings.Count(text, ":80 "))
		}
		last := 0
		for _, want := range []string{
			"cluster cluster-59  TRANSIENT_FAILURE\n", "cluster cluster-58  READY, 1 failed\n", "10.0.58.59:80 ", "10.0.58.0:80 ", "10.0.58.1:80 ", "more endpoints (", "cluster cluster-00 ",
			"more clusters (",
		} {
			i := strings.Index(text[last:], want)
			if i < 0 {
				t.Errorf("full %t: no %q after\n%s", full, want, text[:last])
			}
			last += max(i, 0)
		}
	}
}

// TestFilter checks that a filter selects clusters by name, and endpoints by address and hostname.
func TestFilter(t *testing.T) {
	s := channel(3)
	s.Clusters[0].Leaves[0].Priorities[0].Localities[0].Endpoints[2].Hostname = "db.internal"
	for filter, want := range map[string][2]int{"": {3, 9}, "cluster-01": {1, 3}, "10.0.2.1:": {1, 1}, "db.": {1, 1}, "nothing": {0, 0}} {
		text := write(s, &Text{Full: true, Filter: filter})
		if got := [2]int{strings.Count(text, "  cluster "), strings.Count(text, ":80 ")}; got != want {
			t.Errorf("filter %q: %d clusters and endpoints, want %d:\n%s", filter, got, want, text)
		}
	}
}

// TestCountSince checks that RPCs are counted since a previous status, or from the start of counting
// if that has restarted, and that shares and rates are those of the counted RPCs.
func TestCountSince(t *testing.T) {
	before, now := channel(2), channel(2)
	at := time.Unix(100, 0)
	e := now.Clusters[0].Leaves[0].Priorities[0].Localities[0].Endpoints
	e[0].OK, e[0].FailedRPCs = 8, 2 // before: 2 and 1
	e[1].OK, e[1].FailedRPCs = 0, 0 // before: 2 and 1
	before.Clusters[0].Leaves[0].Priorities[0].Localities[0].Endpoints[0].FailedRPCs = 1
	x := &Text{Now: at.Add(2 * time.Second)}
	x.CountSince(at, []report.TargetStatus{*before})
	text := strings.Join(strings.Fields(write(now, x)), " ")
	for _, want := range []string{"cluster-00 READY, 4 RPCs/s, 1 failed", "10.0.0.0:80 READY 0 0 % 100 % 6 1", "10.0.0.1:80 READY 0 0 % 0 % 0 0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

// TestWidth checks that lines of text for a terminal have up to 80 columns, that a long address is
// complete there, and that a full text has complete names and notes.
func TestWidth(t *testing.T) {
	s := channel(1)
	s.Clusters[0].Name = "cluster-" + strings.Repeat("x", 60)
	e := &s.Clusters[0].Leaves[0].Priorities[0].Localities[0].Endpoints[0]
	e.Address, e.Error = "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:8080", strings.Repeat("unreachable ", 20)
	for line := range strings.Lines(write(s, &Text{})) {
		if n := utf8.RuneCountInString(line); n > Columns+1 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if text := write(s, &Text{}); !strings.Contains(text, e.Address+"\n") {
		t.Errorf("the address is cut:\n%s", text)
	}
	for _, want := range []string{s.Clusters[0].Name + "  TRANSIENT_FAILURE", e.Address, e.Error[:230]} {
		if text := write(s, &Text{Full: true}); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
