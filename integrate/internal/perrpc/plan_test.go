// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"testing"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// TestPlanOfEntry: of a cluster that a route names twice, an override of a filter is
// for the RPCs of its own entry, which are as many as that has weight (A39).
func TestPlanOfEntry(t *testing.T) {
	abort := &resource.Fault{Abort: &resource.FaultAbort{Chance: resource.Percentage{PerMillion: 1e6}}}
	off := map[string]any{"fault": resource.FilterOverride{Disabled: true}}
	r := &picker.Route{Clusters: []picker.WeightedCluster{
		{Name: "twice", Weight: 1, Overrides: off}, {Name: "twice", Weight: 3}, {Name: "twice", Overrides: off},
		{Name: "on", Weight: 1},
		{Name: "off", Weight: 1, Overrides: off},
	}}
	cfg := &picker.Config{Routes: []picker.Route{*r}, Filters: []picker.Filter{{Name: "fault", Config: abort}}}
	plans := (&planner{cfg: cfg}).plansFor(r, true)
	for cluster, want := range map[string]int{"twice": 3000, "on": 4000, "off": 0} {
		got := 0
		for range 4000 {
			got += len(plans.of(cluster).filters)
		}
		// The standard deviation of 3000 is 27.
		if within := 170; cluster == "twice" && (got < want-within || got > want+within) || cluster != "twice" && got != want {
			t.Errorf("cluster %q: %d of 4000 RPCs have the filter, want %d", cluster, got, want)
		}
	}
}
