// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package methodconfig

import (
	"testing"

	"github.com/xdslb/xdslb/picker"
)

// TestSameClustersWith: the sets are compared by name, in any order. Clusters that are the same
// pointer at the same index are not examined; they are nil here.
func TestSameClustersWith(t *testing.T) {
	limited := func(name string) *picker.Cluster {
		return &picker.Cluster{Name: name, Leaves: []picker.Leaf{{Retries: &picker.RetryLimit{}}}}
	}
	free := func(name string) *picker.Cluster { return &picker.Cluster{Name: name, Leaves: []picker.Leaf{{}}} }
	for _, tt := range []struct {
		name string
		a, b []*picker.Cluster
		want bool
	}{
		{"nothing", nil, nil, true},
		{"one of many has changed", []*picker.Cluster{nil, limited("a"), nil}, []*picker.Cluster{nil, limited("a"), nil}, true},
		{"a limit came", []*picker.Cluster{free("a")}, []*picker.Cluster{limited("a")}, false},
		{"a limit went", []*picker.Cluster{limited("a"), free("b")}, []*picker.Cluster{free("a"), free("b")}, false},
		{"a limited one took another's place", []*picker.Cluster{limited("a")}, []*picker.Cluster{limited("b")}, false},
		{"another order", []*picker.Cluster{limited("a"), free("b")}, []*picker.Cluster{free("b"), limited("a")}, true},
		{"one more without a limit", []*picker.Cluster{limited("a")}, []*picker.Cluster{limited("a"), free("b")}, true},
	} {
		if got := SameClustersWith(&picker.Config{Clusters: tt.a}, &picker.Config{Clusters: tt.b}, LimitsRetries); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
