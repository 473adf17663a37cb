// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/picker/persistent"
)

// TestHashBytesOfAggregates: MaxHashBytes bounds the tables of all clusters, also if many aggregates lead to
// the same leaf, of which each has a table.
func TestHashBytesOfAggregates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		const n = 1000
		m := maglev("m", 65537)
		m.EdsClusterConfig.ServiceName = "m"
		resources := []proto.Message{listenerTo("svc", "svc"), m, endpointsAt("m", 1)}
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint("g", i))
			resources = append(resources, aggregateOf(names[i], "m"))
		}
		cp.serve(append(resources, routesTo("svc", names...))...)
		w := h.watch("svc")
		sum := func() (sum uint64) {
			for _, c := range w.must(t).Clusters {
				for _, l := range c.Leaves {
					sum += tableSlotBytes * l.Policy.Ring.MinSize * uint64(len(l.Priorities))
				}
			}
			return sum
		}
		if got := sum(); got > 64<<20 || got < 16<<20 {
			t.Errorf("tables of %d bytes, want 64 MiB at most", got)
		}
		cp.serve(routesTo("svc", names[:10]...))
		if got := sum(); got != 10*tableSlotBytes*65537 {
			t.Errorf("tables of %d bytes for 10 clusters", got)
		}
	})
}

// TestAggregatesTimesLeaves: aggregates that lead to the same leaves are a product, which is bounded. Aggregates
// beyond the bound have an error, until there are fewer.
func TestAggregatesTimesLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		const n = 300
		resources := []proto.Message{listenerTo("svc", "svc"), endpointsAt("e", 1)}
		var names, leaves []string
		for i := range n {
			names, leaves = append(names, fmt.Sprint("g", i)), append(leaves, fmt.Sprint("f", i))
			resources = append(resources, aggregateOf(names[i], "all"), clusterTo(leaves[i], "e"))
		}
		cp.serve(append(resources, aggregateOf("all", leaves...), clusterTo("plain", "e"), routesTo("svc", append(names, "plain")...))...)
		w := h.watch("svc")
		sum, refused := 0, 0
		for _, c := range w.must(t).Clusters {
			if sum += len(c.Leaves); c.Err == nil {
				continue
			}
			if refused++; !strings.Contains(c.Err.Error(), "more than 16384 clusters in all") {
				t.Fatal(c.Err)
			}
		}
		if sum > maxLeaves+n || sum < maxLeaves/2 || refused < n/2 || ports(w.cluster(t, "plain")) != "plain 1" {
			t.Errorf("%d leaves, and %d clusters are refused", sum, refused)
		}
		cp.serve(routesTo("svc", names[n-10:]...))
		advance(time.Second)
		for _, c := range w.must(t).Clusters {
			if c.Err != nil || len(c.Leaves) != n {
				t.Errorf("cluster %q: %d leaves, %v once there are few aggregates", c.Name, len(c.Leaves), c.Err)
			}
		}
	})
}

// TestAggregatesTimesAbsent: clusters that have not been received count for the bound too, so the walks through the
// aggregates do not become a product, and the aggregates that are not refused get their clusters when these arrive.
func TestAggregatesTimesAbsent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		const n = 2000
		resources := []proto.Message{listenerTo("svc", "svc"), endpointsAt("e", 1), clusterTo("plain", "e")}
		var names, leaves []string
		var clusters []proto.Message
		for i := range n {
			names, leaves = append(names, fmt.Sprint("g", i)), append(leaves, fmt.Sprint("f", i))
			resources = append(resources, aggregateOf(names[i], "all"))
			clusters = append(clusters, clusterTo(leaves[i], "e"))
		}
		cp.serve(append(resources, aggregateOf("all", leaves...), routesTo("svc", append(names, "plain")...))...)
		w := h.watch("svc")
		advance(time.Minute) // the clusters do not exist
		refused := 0
		for _, c := range w.must(t).Clusters {
			if c.Err != nil && strings.Contains(c.Err.Error(), "more than 16384 clusters in all") {
				refused++
			}
		}
		if refused < n-10 || refused > n-7 {
			t.Errorf("%d of %d aggregates of %d absent clusters are refused, want all but 8", refused, n, n)
		}
		cp.serve(clusters...)
		advance(time.Minute)
		used := 0
		for _, c := range w.must(t).Clusters {
			if len(c.Leaves) == n {
				used++
			}
		}
		if used < 7 || used > 9 {
			t.Errorf("%d aggregates of %d clusters are in use, want 8", used, n)
		}
	})
}

// TestManyRoutesAreComparedWithoutLock: a target with many routes gets new ones, and shares equal ones with the
// previous plan, but an evaluation, which holds core.mu, does not compare them.
func TestManyRoutesAreComparedWithoutLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := serving(t, Options{})
		names := make([]string, 1500)
		for i := range names {
			names[i] = "svc"
		}
		cp.serve(routesTo("svc", names...))
		before := w.must(t).Routes
		more := routesTo("svc", names...)
		more.VirtualHosts = append(more.VirtualHosts, routesTo("x", "svc").VirtualHosts...)
		more.VirtualHosts[len(more.VirtualHosts)-1].Domains = []string{"other.example"}
		cp.serve(more)
		if !persistent.SameSlice(before, w.must(t).Routes) {
			t.Error("equal routes are a copy")
		}
		m := h.c.targets.managers[h.c.view().key("svc", "svc")]
		h.c.mu.Lock()
		m.latest = nil
		m.evaluateLocked()
		if m.compared == nil || m.compared.done || m.latest != nil {
			t.Errorf("an evaluation has compared %d routes", len(before))
		}
		m.notifyLocked()
		h.c.mu.Unlock()
		cp.serve(routesTo("svc", names[1:]...))
		if got := len(w.must(t).Routes); got != len(before)-1 {
			t.Errorf("%d routes, want %d", got, len(before)-1)
		}
	})
}
