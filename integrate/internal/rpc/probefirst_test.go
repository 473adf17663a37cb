// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"testing"

	"github.com/xdslb/xdslb/picker"
)

// askingConfig has a route to each of two clusters; the RPCs of those that are named ask.
func askingConfig(asking ...string) *picker.Config {
	cfg := &picker.Config{}
	for _, name := range []string{"a", "b"} {
		leaf := picker.Leaf{Name: name, Policy: picker.Policy{Kind: picker.PolicyPrequal, Prequal: &picker.Prequal{}}}
		for _, n := range asking {
			if n == name {
				leaf.Policy.Prequal = &picker.Prequal{Synchronous: 3}
			}
		}
		cfg.Clusters = append(cfg.Clusters, &picker.Cluster{Name: name, Leaves: []picker.Leaf{leaf}})
		cfg.Routes = append(cfg.Routes, picker.Route{Clusters: []picker.WeightedCluster{{Name: name, Weight: 1}}})
	}
	return cfg
}

func TestSameClusters(t *testing.T) {
	for _, test := range []struct {
		a, b []string
		same bool
	}{
		{nil, nil, true}, {nil, []string{"a"}, false}, {[]string{"b"}, nil, false},
		{[]string{"a"}, []string{"a"}, true}, {[]string{"a"}, []string{"b"}, false},
	} {
		a, b := askingConfig(test.a...), askingConfig(test.b...)
		if got := SameClusters(a, b); got != test.same {
			t.Errorf("SameClusters(%v, %v) = %t", test.a, test.b, got)
		}
		b.Clusters[0].Name, b.Clusters[1].Name = "b", "a"
		if got := SameClusters(a, b); got != (len(test.a)+len(test.b) == 0 || len(test.a) > 0 && len(test.b) > 0 && !test.same) {
			t.Errorf("with exchanged names: SameClusters(%v, %v) = %t", test.a, test.b, got)
		}
	}
	a, b := askingConfig(), askingConfig()
	a.Clusters[0].Leaves[0].Retries = new(picker.RetryLimit)
	if SameClusters(a, b) {
		t.Error("a limit of retries makes no difference")
	}
}

// TestAskingPlans: only routes to clusters whose endpoints are asked need a plan for it.
func TestAskingPlans(t *testing.T) {
	if _, plans := Compile(askingConfig(), false); plans != nil {
		t.Errorf("the asynchronous mode has plans %v", plans)
	}
	_, plans := Compile(askingConfig("b"), false)
	if plans == nil || plans.routes[0] != nil || plans.routes[1] == nil || !plans.routes[1].all.needed() || len(plans.unapplied()) != 1 {
		t.Errorf("plans are %+v", plans)
	}
}
