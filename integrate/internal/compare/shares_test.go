// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/integrate"
)

// TestShares compares the shares of both with the ones that follow from the weights: in stock a
// locality has its share by weight, and its endpoints equal parts of it; LEAST_REQUEST gives all
// endpoints of a priority the same share there.
func TestShares(t *testing.T) {
	list := func(weight int, e ...string) string {
		return fmt.Sprintf(`{"loadBalancingWeight": %d, "lbEndpoints": [%s]}`, weight, strings.Join(e, ","))
	}
	weighted := endpoints(list(3, endpoint(1, 1), endpoint(2, 3)), list(1, endpoint(3, 5), endpoint(4, 5)))
	for _, tt := range []struct {
		name   string
		change change
		moved  float64
		causes []string
		shares map[string][2]float64 // stock, xdslb
	}{
		{"equal weights", endpoints(list(3, endpoint(1, 2), endpoint(2, 2)), list(1, endpoint(3, 5))), 0, nil, nil},
		{"weights", weighted, .75 * .25, []string{"endpoint weights"}, map[string][2]float64{
			"10.0.0.1:80": {.375, .1875}, "10.0.0.2:80": {.375, .5625},
		}},
		{"ignored weights", all(weighted, config(func(c *integrate.Config) { c.IgnoreEndpointWeights = true })), 0, nil, nil},
		{"a draining endpoint", all(endpoints(list(1, endpoint(1, 2), endpoint(2, 2), strings.Replace(endpoint(3, 9), `{`, `{"healthStatus": "DRAINING", `, 1)))), 0, nil, nil},
		{"LEAST_REQUEST", all(cluster(`{"lbPolicy": "LEAST_REQUEST"}`), endpoints(list(3, endpoint(1, 1)), list(1, endpoint(2, 1)))), .25,
			[]string{"locality weights with LEAST_REQUEST"}, map[string][2]float64{"10.0.0.1:80": {.5, .75}, "10.0.0.2:80": {.5, .25}}},
		{"ring hash", all(weighted, cluster(`{"lbPolicy": "RING_HASH"}`)), 0, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := inspect(t, tt.change).ShareShifts
			if tt.moved == 0 {
				if len(s) > 0 {
					t.Errorf("%+v, want no shift", s)
				}
				return
			}
			if len(s) != 1 || s[0].Cluster != "svc" || math.Abs(s[0].Moved-tt.moved) > 1e-6 || !slices.Equal(s[0].Causes, tt.causes) || len(s[0].Endpoints) != len(tt.shares) {
				t.Fatalf("%+v, want %v moved by %q", s, tt.moved, tt.causes)
			}
			for _, e := range s[0].Endpoints {
				want, ok := tt.shares[e.Address]
				if !ok || math.Abs(e.Stock-want[0]) > 1e-6 || math.Abs(e.Xdslb-want[1]) > 1e-6 {
					t.Errorf("%+v, want %v", e, want)
				}
			}
		})
	}
}

// TestManyShares checks that the list of endpoints is bounded, and has those that change most.
func TestManyShares(t *testing.T) {
	var e []string
	for i := range 40 {
		e = append(e, endpoint(i+1, 1+i/39*400))
	}
	s := inspect(t, endpoints(`{"lbEndpoints": [`+strings.Join(e, ",")+`]}`)).ShareShifts
	if len(s) != 1 || len(s[0].Endpoints) != 10 || s[0].Endpoints[0].Address != "10.0.0.40:80" {
		t.Errorf("%+v, want 10 endpoints, with the heaviest first", s)
	}
}
