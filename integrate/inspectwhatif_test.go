// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"math"
	"testing"
)

// TestPickWhatIf: picks by resources of a file go as InspectWhatIf has the shares, and each
// is accounted for.
func TestPickWhatIf(t *testing.T) {
	w := shop(t)
	const n = 20_000
	picks, err := PickWhatIf(context.Background(), w, n)
	if err != nil {
		t.Fatal(err)
	}
	s, err := InspectWhatIf(w)
	if err != nil {
		t.Fatal(err)
	}
	byCluster, got := map[string]float64{}, map[string]float64{}
	sum := picks.Waiting + picks.Failed + picks.NoRoute + picks.Refused + picks.Delegated
	for _, e := range picks.Endpoints {
		sum += e.RPCs
		byCluster[e.Cluster] += float64(e.RPCs)
		got[e.Cluster+e.Address] = float64(e.RPCs)
	}
	if picks.RPCs != n || sum != n {
		t.Errorf("of %d RPCs %d were picked, and %d are accounted for: %+v", n, picks.RPCs, sum, picks)
	}
	if byCluster["cart"] < 1000 {
		t.Errorf("cart got %v RPCs of %d: its circuit breaker of 100 holds RPCs that have ended", byCluster["cart"], n)
	}
	checked := 0
	for _, c := range s.Clusters {
		total := 0.
		for _, l := range c.Leaves {
			for _, p := range l.Priorities {
				for _, loc := range p.Localities {
					total += loc.Share
					for _, e := range loc.Endpoints {
						k := byCluster[c.Name]
						if d := math.Abs(got[c.Name+e.Address] - k*e.Share); d > 7*math.Sqrt(k*e.Share*(1-e.Share))+1 {
							t.Errorf("%s of %s got %v of %v RPCs, want a share of %v", e.Address, c.Name, got[c.Name+e.Address], k, e.Share)
						}
						if (e.Share > 0) != (e.Out == "") {
							t.Errorf("%s of %s is %+v", e.Address, c.Name, e)
						}
						checked++
					}
				}
			}
		}
		if c.Error == "" && math.Abs(total-1) > 1e-9 {
			t.Errorf("the endpoints of %s get %v of its RPCs", c.Name, total)
		}
	}
	if checked == 0 || len(s.RouteTable) == 0 {
		t.Errorf("the status is %+v", s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if picks, err := PickWhatIf(ctx, w, n); err == nil || picks.RPCs == n {
		t.Errorf("after the context has ended, there are %d picks (%v)", picks.RPCs, err)
	}
}
