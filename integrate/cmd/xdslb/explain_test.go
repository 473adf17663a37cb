// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestExplainDrops: RPCs that are dropped are a finding.
func TestExplainDrops(t *testing.T) {
	w := newWorld(t)
	r := xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(w.backends...)})
	xdstest.Drop(r.Endpoints[0], "maintenance", 1_000_000)
	if err := w.control.Update(r); err != nil {
		t.Fatal(err)
	}
	wantCall(t, exitFinding, []string{"explain", "orders", "/a/b", "-b", w.bootstrap}, "100 % are dropped")
	wantCall(t, exitFinding, []string{"pick", "orders", "-n", "10", "-b", w.bootstrap}, "100 % of the RPCs are dropped")
}

// TestUnmeasuredLatency: endpoints that no RPC was sent to have no latency, neither in the text nor in
// the JSON.
func TestUnmeasuredLatency(t *testing.T) {
	w := newWorld(t)
	r := xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(w.backends...)})
	r.Clusters[0] = xdstest.Cluster("orders", "orders", xdstest.Policies(xdstest.TypedStruct(integrate.LeastLatency, nil)))
	if err := w.control.Update(r); err != nil {
		t.Fatal(err)
	}
	args := []string{"explain", "orders", "/a/b", "-b", w.bootstrap}
	if s := wantCall(t, exitOK, args, "least_latency", "50 %, READY"); strings.Contains(s.out, " ms") {
		t.Errorf("the explanation has a latency:\n%s", s.out)
	}
	if s := wantCall(t, exitOK, append(args, "-o", "json"), "least_latency"); strings.Contains(s.out, `"latency"`) {
		t.Errorf("the JSON has a latency:\n%s", s.out)
	}
}
