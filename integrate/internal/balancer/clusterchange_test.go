// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xdslb/xdslb/picker"
)

// changeOne returns the configuration with another circuit breaker for one cluster.
func changeOne(cfg *picker.Config, i int, maxRequests uint32) *picker.Config {
	next, changed := *cfg, *cfg.Clusters[i]
	changed.Leaves = slices.Clone(changed.Leaves)
	changed.Leaves[0].MaxRequests = maxRequests
	next.Clusters = slices.Clone(cfg.Clusters)
	next.Clusters[i] = &changed
	return &next
}

// TestOneClusterChangesAlone: a configuration that changes one cluster of many does not look
// at the others, nor does its publication: they are not even there.
func TestOneClusterChangesAlone(t *testing.T) {
	const n, k = 20, 7
	b, _, cfg, _ := startClusters(t, n)
	next := changeOne(cfg, k, 5)
	all, received := b.list.all, b.list.received
	b.list.all, b.list.received = make([]*cluster, n), make([]*picker.Cluster, n)
	b.list.own = b.list.received
	changed := next.Clusters[k]
	next.Clusters = make([]*picker.Cluster, n)
	b.list.all[k], b.list.received[k], next.Clusters[k] = all[k], received[k], changed
	b.Update(next)
	b.flush()
	if got := all[k].leaves[0].cfg.MaxRequests; got != 5 || all[k].dirty {
		t.Errorf("after the change the cluster has %d requests at most, want 5; its publication is due: %v", got, all[k].dirty)
	}
	copy(b.list.all, all) // for the end
}

// TestClustersFollow: after any sequence of configurations, each cluster has the latest
// configuration of the channel, and a cluster whose configuration did not change stays as it is.
func TestClustersFollow(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b, _ := newTestLB(t, Config{})
		var sent []*picker.Cluster
		for round := range 30 {
			before := map[*picker.Cluster]*picker.Cluster{}
			for _, c := range b.list.all {
				before[c.received] = c.cfg
			}
			sent = someClusters(rng, sent)
			kept := slices.Clone(sent)
			b.Update(configOf(sent...))
			b.flush()
			if !slices.Equal(kept, sent) {
				t.Fatalf("seed %d, round %d: the channel has changed the configuration that it received", seed, round)
			}
			checkClusters(t, b, sent, before, fmt.Sprintf("seed %d, round %d", seed, round))
		}
	}
}

// someClusters makes the clusters of another configuration: the same, or with one changed,
// gone or new, or in another order. Some want a subset of their endpoints.
func someClusters(rng *rand.Rand, old []*picker.Cluster) []*picker.Cluster {
	next := slices.Clone(old)
	random := func(name string) *picker.Cluster {
		c := clusterOf(name, prio(eps(series(rng.IntN(50), 5)...)))
		if rng.IntN(3) == 0 {
			c.Leaves[0].Policy.Subset = 3
		}
		return c
	}
	switch k := rng.IntN(6); {
	case len(next) == 0 || k == 0:
		next = slices.Insert(next, rng.IntN(len(next)+1), random(fmt.Sprint("new", rng.Uint32())))
	case k == 1 && len(next) > 1:
		i := rng.IntN(len(next))
		next = slices.Delete(next, i, i+1)
	case k == 2:
		rng.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
	case k == 3:
	default:
		i := rng.IntN(len(next))
		next[i] = random(next[i].Name)
	}
	return next
}

// checkClusters compares the channel's clusters with the sent ones; before maps each sent cluster
// to the channel's form of it under the previous configuration.
func checkClusters(t *testing.T, b *testLB, sent []*picker.Cluster, before map[*picker.Cluster]*picker.Cluster, when string) {
	t.Helper()
	if len(b.list.all) != len(sent) || len(b.clusters) != len(sent) || len(b.cfg.Clusters) != len(sent) {
		t.Fatalf("%s: %d clusters, %d by name, %d in the configuration; %d were sent", when, len(b.list.all), len(b.clusters), len(b.cfg.Clusters), len(sent))
	}
	for i, want := range sent {
		c := b.list.all[i]
		if c.received != want || c.cfg != b.cfg.Clusters[i] || c.cfg.Name != want.Name || b.clusters[want.Name] != c || c.index != i {
			t.Fatalf("%s: cluster %d is not %q as it was sent", when, i, want.Name)
		}
		if cfg := before[want]; cfg != nil && cfg != c.cfg {
			t.Fatalf("%s: cluster %q was rebuilt although it did not change", when, want.Name)
		}
		endpoints := 5
		if want.Leaves[0].Policy.Subset > 0 {
			endpoints = 3
		} else if c.cfg != want {
			t.Fatalf("%s: cluster %q is a copy, without need", when, want.Name)
		}
		if got := c.cfg.Leaves[0].Priorities[0].Localities[0].Endpoints.Len(); got != endpoints {
			t.Fatalf("%s: cluster %q has %d endpoints, want %d", when, want.Name, got, endpoints)
		}
	}
}
