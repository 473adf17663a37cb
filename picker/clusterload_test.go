// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

func leafOf(zones []string, categories ...string) *Leaf {
	var leaf Leaf
	for i, z := range zones {
		l := Locality{ID: LocalityID{Zone: z}, Weight: 1}
		leaf.Priorities = append(leaf.Priorities, Priority{Localities: []Locality{l}})
		leaf.Drops = append(leaf.Drops, Drop{Category: categories[i%len(categories)]})
	}
	return &leaf
}

func TestClusterLoad(t *testing.T) {
	var c ClusterLoad
	a, b := c.Locality(LocalityID{Zone: "a"}), c.Locality(LocalityID{Zone: "b"})
	if a == b || c.Locality(LocalityID{Zone: "a"}) != a {
		t.Error("Locality does not return one Load per locality")
	}
	x, y := c.Drop("x"), c.Drop("y")
	if x == y || c.Drop("x") != x {
		t.Error("Drop does not return one Counter per category")
	}
	x.Add()
	c.Overload().Add()
	if x.Load() != 1 || y.Load() != 0 || c.Overload().Load() != 1 {
		t.Errorf("drops x %d, y %d, overload %d; want 1, 0, 1", x.Load(), y.Load(), c.Overload().Load())
	}
	if got := maps.Collect(c.Localities()); len(got) != 2 || got[LocalityID{Zone: "a"}] != a || got[LocalityID{Zone: "b"}] != b {
		t.Errorf("Localities() = %v", got)
	}
	for category := range c.Drops() {
		c.Drop(category + "'") // a loop may modify the collection it iterates over
	}
	if got := slices.Sorted(maps.Keys(maps.Collect(c.Drops()))); !slices.Equal(got, []string{"x", "x'", "y", "y'"}) {
		t.Errorf("Drops() has %q", got)
	}
	for range c.Localities() {
		break
	}
}

// T-LRS-3: counters that are no longer in use are fully reported before they are removed.
func TestClusterLoadForget(t *testing.T) {
	var c ClusterLoad
	id := LocalityID{Zone: "a"}
	l, drop := c.Locality(id), c.Drop("x")
	l.issue()
	drop.Add()
	busy := l.Snapshot()
	if c.Forget(id, busy) || c.ForgetDrop("x", 1) {
		t.Error("counters in use were forgotten")
	}
	c.Retain(leafOf([]string{"b"}, "y"))
	if c.Forget(id, busy) {
		t.Error("a locality with an RPC in progress was forgotten")
	}
	l.finish(CallOK)
	if c.Forget(id, busy) || c.ForgetDrop("x", 0) {
		t.Error("counters were forgotten before their last counts were read")
	}
	if got := maps.Collect(c.Localities()); got[id] != l {
		t.Error("a locality that is out of use is not reported")
	}
	c.Retain(leafOf([]string{"a"}, "x"))
	if c.Forget(id, l.Snapshot()) || c.ForgetDrop("x", 1) {
		t.Error("counters that came back into use were forgotten")
	}
	c.Retain(&Leaf{})
	c.Retain(&Leaf{})
	if c.Locality(id) != l || c.Forget(id, l.Snapshot()) {
		t.Error("a reused locality was forgotten")
	}
	c.Retain(&Leaf{})
	if !c.Forget(id, l.Snapshot()) || !c.ForgetDrop("x", 1) {
		t.Error("counters that were read to the end were not forgotten")
	}
	if c.Locality(id) == l || c.Drop("x") == drop {
		t.Error("counters came back after they were forgotten")
	}
}

// The memory is bounded by the counters in use, for any number of configuration changes.
func TestClusterLoadBounded(t *testing.T) {
	var c ClusterLoad
	for i := range 1000 {
		name := fmt.Sprint(i)
		c.Locality(LocalityID{Zone: name})
		c.Drop(name)
		c.Retain(leafOf([]string{name}, name))
		for id, l := range c.Localities() {
			c.Forget(id, l.Snapshot())
		}
		for category, n := range c.Drops() {
			c.ForgetDrop(category, n.Load())
		}
	}
	if n, m := len(maps.Collect(c.Localities())), len(maps.Collect(c.Drops())); n != 1 || m != 1 {
		t.Errorf("%d localities and %d categories are left, want 1 and 1", n, m)
	}
}

func TestClusterLoadSilent(t *testing.T) {
	c := ClusterLoad{Unreported: true}
	l, b := c.Locality(LocalityID{}), new(Breaker)
	var e EndpointState
	e.Bind(NewBinding(l, b, false))
	b.Acquire(1)
	l.issue()
	e.Finish(CallFailed)
	if got := l.Snapshot(); got.Issued != 1 || got.Failed != 0 || b.InFlight() != 0 {
		t.Errorf("unreported load %+v with %d in flight", got, b.InFlight())
	}
}

func TestClusterLoadConcurrent(t *testing.T) {
	var (
		c  ClusterLoad
		wg sync.WaitGroup
	)
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				id := LocalityID{Zone: fmt.Sprint((g + i) % 5)}
				c.Locality(id).issue()
				if i%10 == 0 {
					c.Retain(leafOf([]string{id.Zone}, "x"))
				}
			}
		})
		wg.Go(func() {
			for range 100 {
				for id, l := range c.Localities() {
					c.Forget(id, l.Snapshot())
				}
			}
		})
	}
	wg.Wait()
	var issued uint64
	for _, l := range c.Localities() {
		issued += l.Snapshot().Issued
	}
	if issued != 800 {
		t.Errorf("%d RPCs were issued, want 800", issued)
	}
}

// TestForgetMetrics: a locality whose metrics were not taken is not forgotten.
func TestForgetMetrics(t *testing.T) {
	var c ClusterLoad
	id := LocalityID{Zone: "z"}
	c.Locality(id)
	c.Metrics(id).Add("cost", 2)
	c.Retain(&Leaf{})
	if c.Forget(id, LoadSnapshot{}) {
		t.Error("a locality with metrics was forgotten")
	}
	if got := c.TakeMetrics()[id]["cost"].Count; got != 1 {
		t.Errorf("the metric was counted %d times, want once", got)
	}
	if !c.Forget(id, LoadSnapshot{}) {
		t.Error("a locality whose metrics were taken was not forgotten")
	}
}

// TestMetrics: A85 sums and counts, from nothing after each report; bounded.
func TestMetrics(t *testing.T) {
	var c ClusterLoad
	id := LocalityID{Zone: "z"}
	c.Metrics(id).Add("cost", 2)
	c.Metrics(id).Add("cost", 3)
	c.Metrics(id).Add("cpu", 0.5)
	c.Metrics(LocalityID{Zone: "idle"})
	want := map[LocalityID]map[string]MetricSum{id: {"cost": {2, 5}, "cpu": {1, 0.5}}}
	if got := c.TakeMetrics(); !reflect.DeepEqual(got, want) {
		t.Errorf("TakeMetrics() = %v, want %v", got, want)
	}
	for _, value := range []float64{math.MaxFloat64, -math.MaxFloat64} {
		c.Metrics(id).Add("absurd", value)
		c.Metrics(id).Add("absurd", value)
		if got := c.TakeMetrics()[id]["absurd"]; got != (MetricSum{2, value}) {
			t.Errorf("the sum of %v twice is %v, want %[1]v", value, got)
		}
	}
	if got := c.TakeMetrics(); got != nil {
		t.Errorf("second TakeMetrics() = %v, want none", got)
	}
	for i := range 2 * maxMetrics {
		c.Metrics(id).Add(fmt.Sprint(i), 1)
	}
	if got := len(c.TakeMetrics()[id]); got != maxMetrics {
		t.Errorf("%d names, want at most %d", got, maxMetrics)
	}
	c.Metrics(id).Add(strings.Repeat("x", 256), 1)
	c.Metrics(id).Add(strings.Repeat("x", 257), 1)
	if got := c.TakeMetrics()[id]; len(got) != 1 || got[strings.Repeat("x", 256)].Count != 1 {
		t.Errorf("metrics %v, want the one whose name has 256 bytes", got)
	}
	for range 2 { // from nothing after each report
		for i := range 1000 {
			c.Metrics(id).Add(fmt.Sprintf("%0200d", i%500), 1)
		}
		size, count := 0, uint64(0)
		for name, sum := range c.TakeMetrics()[id] {
			size += len(name)
			count += sum.Count
		}
		if size > 64<<10 || size < 64<<10-200 || count != uint64(2*size/200) {
			t.Errorf("%d bytes of names were counted %d times, want up to 64 KiB, twice each", size, count)
		}
	}
}
