// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import "testing"

// TestZones: clients are in zones as their parts say, and RPCs to other zones are counted.
func TestZones(t *testing.T) {
	f := small(func(f *Fleet) { f.Clients, f.Zones, f.ClientZones = 10, 3, []float64{.5, .3, .2} })
	var counts [3]int
	for i := range f.Clients {
		counts[f.clientZone(i)]++
	}
	if counts != [3]int{5, 3, 2} {
		t.Fatalf("clients in zones: %v", counts)
	}
	// Two thirds and a sixth are expected of 540 RPCs, give or take ten deviations.
	if r := played(t, f, row(t, "ours round_robin")); r.Foreign < .45 || r.Foreign > .87 {
		t.Errorf("%v of the RPCs leave their zone by a policy that does not mind", r.Foreign)
	}
	if r := played(t, f, row(t, "ours round_robin, zone-aware")); r.Foreign < .02 || r.Foreign > .32 {
		t.Errorf("%v of the RPCs leave their zone by one that does", r.Foreign)
	}
}
