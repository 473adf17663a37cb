// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// TestFirstEndpointsAtOnce: a channel's first endpoints get RPCs as soon as they are READY, while
// the endpoints of a large cluster are published together.
func TestFirstEndpointsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(clusterOf("c", prio(eps(1, 2, 3)))))
		synctest.Wait()
		for n := 1; n <= 3; n++ {
			cc.conn(t, n).To(ready)
		}
		got := map[string]bool{}
		for range 3 {
			a, err := b.pick()
			kit.Must(t, err)
			got[a] = true
		}
		if len(got) != 3 {
			t.Errorf("the first three RPCs went to %d of 3 endpoints", len(got))
		}
	})
}

// TestStatesAtOnce: gRPC is notified of each state of the channel, however fast connections are:
// from IDLE it comes to READY by way of CONNECTING, though the snapshot for picks is published
// after a pause.
func TestStatesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(ring(clusterOf("c", prio(eps(0)))), ring(clusterOf("other", prio(eps(1))))))
		begin := time.Now()
		want := func(when string, s connectivity.State) {
			t.Helper()
			if synctest.Wait(); cc.Now.ConnectivityState != s {
				t.Errorf("%s the channel is %v, want %v", when, cc.Now.ConnectivityState, s)
			}
		}
		want("before any RPC", idle)
		for range 3 {
			_, _ = b.pickHash(1)
			want("while an RPC has an endpoint connected", connecting)
			cc.conn(t, 0).To(ready)
			want("when the endpoint is READY", ready)
			cc.conn(t, 0).To(idle)
			want("when the connection is lost", idle)
			b.flush() // picks learn of it
		}
		if time.Since(begin) > 0 {
			t.Error("time has passed")
		}
	})
}

// TestUpdateRate (LB-SEC-1): however fast configurations come, the snapshot for picks is built no
// more often than every millisecond, and the last configuration takes effect in time.
func TestUpdateRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		const updates = 1000
		begin, built := time.Now(), 0
		last := b.picker.current.Load()
		count := func() {
			if now := b.picker.current.Load(); now != last {
				last = now
				built++
			}
		}
		for i := range updates {
			b.Update(configOf(clusterOf("c", prio(eps(1, 2+i)))))
			count()
			<-time.After(100 * time.Microsecond)
			synctest.Wait()
			count()
		}
		if most := int(time.Since(begin)/time.Millisecond) + 1; built > most {
			t.Errorf("%d snapshots of %d updates in %v, want at most %d", built, updates, time.Since(begin), most)
		}
		<-time.After(maxPublishPause)
		synctest.Wait()
		cc.conn(t, updates+1).To(ready)
		b.flush()
		if got, err := b.pick(); got != addr(updates+1).String() {
			t.Errorf("picked %q, %v, want the endpoint of the last update", got, err)
		}
		b.closing.Wait()
	})
}

// TestShutdownDelay checks that a removed SubConn is shut down a moment after the publication
// that removes it, since RPCs that picked it may not have created their streams, and at once if
// the balancer is closed.
func TestShutdownDelay(t *testing.T) {
	shutdownDelay = 50 * time.Millisecond
	defer func() { shutdownDelay = 0 }()
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		replaceBy := func(n int) {
			b.Update(configOf(clusterOf("c", prio(eps(n)))))
			cc.conn(t, n).To(ready)
			time.Sleep(maxPublishPause)
			synctest.Wait()
			if got, err := b.pick(); got != addr(n).String() {
				t.Fatalf("Pick() = %q, %v, want endpoint %d", got, err, n)
			}
		}
		replaceBy(1)
		replaceBy(2)
		if !cc.has(1) {
			t.Errorf("the removed SubConn was shut down within %v of the publication", maxPublishPause)
		}
		time.Sleep(shutdownDelay)
		synctest.Wait()
		if cc.has(1) {
			t.Errorf("the removed SubConn was not shut down within %v of the publication", shutdownDelay)
		}
		replaceBy(3)
		b.Close()
		synctest.Wait()
		if cc.has(2) || cc.has(3) {
			t.Error("Close did not shut down all SubConns at once")
		}
	})
}

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

// TestClusterListForgets: the published state of a cluster that has left the list does not count in
// the channel's state.
func TestClusterListForgets(t *testing.T) {
	stays, goes := &cluster{}, &cluster{}
	publish := func(l *clusterList, status map[*cluster]picker.Connectivity) {
		changed, _ := l.begin()
		for _, c := range changed {
			c.dirty = false
			l.count(c, status[c])
		}
		l.done()
	}
	var l clusterList
	l.set([]*cluster{stays, goes})
	publish(&l, map[*cluster]picker.Connectivity{stays: picker.Connecting, goes: picker.Ready})
	if got := l.best(); got != picker.Ready {
		t.Errorf("with a cluster that is ready: %v", got)
	}
	l.set([]*cluster{stays})
	publish(&l, map[*cluster]picker.Connectivity{stays: picker.Connecting})
	if got := l.best(); got != picker.Connecting {
		t.Errorf("when that has gone: %v, want %v", got, picker.Connecting)
	}
	l.mark(stays)
	publish(&l, map[*cluster]picker.Connectivity{stays: picker.Idle})
	if got := l.best(); got != picker.Idle {
		t.Errorf("after another publication of the one that is left: %v, want %v", got, picker.Idle)
	}
}
