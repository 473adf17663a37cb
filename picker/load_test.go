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
	"sync/atomic"
	"testing"

	"github.com/xdslb/xdslb/bench/kit/slow"
)

// TestContention checks the rule that starts stripes: so many failures within a window of RPCs.
func TestContention(t *testing.T) {
	for _, test := range []struct {
		name   string
		counts func(yield func(uint64) bool) // at which compare-and-swap fails
		want   bool
	}{
		{"often", func(yield func(uint64) bool) {
			for i := range uint64(contendedMisses) {
				if !yield(5*contendedWindow + 60*i) {
					return
				}
			}
		}, true},
		{"too few", func(yield func(uint64) bool) {
			for i := range uint64(contendedMisses - 1) {
				if !yield(5*contendedWindow + i) {
					return
				}
			}
		}, false},
		{"rarely", func(yield func(uint64) bool) {
			for i := range uint64(100 * contendedMisses) {
				if !yield(i * contendedWindow / (contendedMisses - 1)) {
					return
				}
			}
		}, false},
	} {
		var c contention
		got := false
		for n := range test.counts {
			got = c.missed(n) || got
		}
		if got != test.want {
			t.Errorf("%s: contended: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestLoadFallsBack checks that a Load that one P uses alone stops using stripes, that one used by two does not,
// and that stripes are made only once.
func TestLoadFallsBack(t *testing.T) {
	for _, users := range []int{1, 2} {
		var l Load
		l.stripe(4)
		for i := range 4 * aloneBatches * batch {
			if l.striped.Load() == 0 {
				break
			}
			l.issueAt(i / (10 * batch) % users)
		}
		if striped := l.striped.Load() != 0; striped != (users > 1) {
			t.Errorf("striped with %d users: %v", users, striped)
		}
		before := l.stripes.Load()
		l.stripe(4)
		if l.striped.Load() == 0 || l.stripes.Load() != before {
			t.Errorf("with %d users, stripes are not used again", users)
		}
	}
	var l Load
	if l.stripe(1); l.striped.Load() != 0 {
		t.Error("a single P has stripes")
	}
}

// TestLoadPositions checks that each position is issued exactly once, from P chosen at random, more than there are
// stripes, while stripes start and stop being used. It checks all counts after each RPC.
func TestLoadPositions(t *testing.T) {
	rng := newRand(1)
	var (
		l     Load
		seen  []uint64
		ended [countChosen]uint64
	)
	chosen := uint64(0)
	for range 20_000 {
		if rng.IntN(300) == 0 {
			l.striped.Store(0)
		}
		if rng.IntN(300) == 0 {
			l.stripe(3)
		}
		if l.striped.Load() == 0 {
			seen = append(seen, l.issue())
		} else {
			seen = append(seen, l.issueAt(rng.IntN(5)))
		}
		if rng.IntN(10) == 0 {
			chosen++
			l.count(countChosen)
		}
		if r := CallResult(rng.IntN(5)); r < countChosen {
			ended[r]++
			l.finish(r)
		}
		issued := uint64(len(seen)) + chosen - ended[CallNotSent]
		want := LoadSnapshot{issued, ended[CallOK], ended[CallFailed], issued - ended[CallOK] - ended[CallFailed] - ended[CallCanceled]}
		if got := l.Snapshot(); got != want {
			t.Fatalf("Snapshot() = %+v, want %+v", got, want)
		}
	}
	checkPositions(t, &l, seen)
}

// checkPositions checks that the positions below l.issued are the given ones and the ones that stripes have left, each
// once.
func checkPositions(t *testing.T, l *Load, seen []uint64) {
	t.Helper()
	for i := range l.stripes.Load().list {
		w := l.stripes.Load().list[i].positions.Load()
		for k := range w & leftMask {
			seen = append(seen, w>>8+k)
		}
	}
	slices.Sort(seen)
	for i, n := range seen {
		if n != uint64(i) {
			t.Fatalf("position %d is %d", i, n)
		}
	}
	if n := l.issued.Load(); n != uint64(len(seen)) {
		t.Fatalf("%d positions were taken, and %d are known", n, len(seen))
	}
}

// TestLoadTaking checks that an RPC does not wait for another goroutine that takes positions for the same
// stripe, and that these positions count as issued meanwhile, but never too few.
func TestLoadTaking(t *testing.T) {
	var l Load
	l.stripe(2)
	first := &l.stripes.Load().list[0].positions
	first.Store(taking)
	if n := l.issueAt(0); n != 0 || l.Snapshot().Issued != 1 {
		t.Errorf("position %d, and %d are issued; want 0 and 1", n, l.Snapshot().Issued)
	}
	n := l.issued.Add(batch) - batch // as the other goroutine does
	if got := l.Snapshot().Issued; got != 1+batch {
		t.Errorf("%d are issued while a stripe takes positions, want %d", got, 1+batch)
	}
	first.Store((n+1)<<8 | batch - 1)
	if got := l.Snapshot().Issued; got != 2 {
		t.Errorf("%d are issued after a stripe took positions, want 2", got)
	}
	if n := l.issueAt(0); n != 2 {
		t.Errorf("position %d, want 2", n)
	}
}

// TestStripedShares checks that goroutines that pick at the same time from a striped cluster pick the EDF sequence:
// each of its picks once, except for the positions that stripes have left. It does so for localities and for a
// flat group, whose position is the cluster's. The oracle adds up the sequence.
func TestStripedShares(t *testing.T) {
	const goroutines = 4
	rounds := 20_000
	if testing.Short() || raceEnabled {
		rounds = 2000
	}
	for _, flat := range []bool{false, true} {
		w := benchWorld(3, 30, 0, false)
		w.leaf(0).Policy.Flat = flat
		w.renew(0)
		s, states := w.build(t), w.flat(0)
		c := s.clusters.At(0)
		for i := range c.groups {
			c.groups[i].cursor.stripe(3)
			// Picks that outrun the goroutine that fills the table of a sequence are out of
			// sequence, so it is filled before.
			for n := range slow.Period(c.groups[i].schedule.Weights()) {
				c.groups[i].schedule.At(n)
			}
		}
		for i := range w.states[0].Localities {
			w.states[0].Localities[i].Load.stripe(3)
		}
		picks := make([]atomic.Int64, len(states))
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				rng := newRand(uint64(g))
				for range rounds {
					if r := s.Pick(bg, "/s/m", rng.Uint64()); r.Outcome == Picked {
						picks[r.Index].Add(1)
						states[r.Index].Finish(CallOK)
					} else {
						t.Errorf("outcome %d", r.Outcome)
					}
				}
			})
		}
		wg.Wait()
		want := make([]int64, len(states))
		for i := range c.groups {
			g := &c.groups[i]
			for n := range g.cursor.issued.Load() {
				want[g.first+int32(g.schedule.At(n))]++
			}
			for i := range g.cursor.stripes.Load().list {
				positions := g.cursor.stripes.Load().list[i].positions.Load()
				for k := range positions & leftMask {
					want[g.first+int32(g.schedule.At(positions>>8+k))]--
				}
			}
		}
		for i := range want {
			if got := picks[i].Load(); got != want[i] {
				t.Errorf("flat %v: endpoint %d was picked %d times, want %d", flat, i, got, want[i])
			}
		}
		total := LoadSnapshot{}
		for i := range w.states[0].Localities {
			n := w.states[0].Localities[i].Load.Snapshot()
			total.Issued, total.OK = total.Issued+n.Issued, total.OK+n.OK
		}
		if n := uint64(goroutines * rounds); total != (LoadSnapshot{Issued: n, OK: n}) || w.breakers[0].InFlight() != 0 {
			t.Errorf("flat %v: counts are %+v and %d in flight, want %d and 0", flat, total, w.breakers[0].InFlight(), n)
		}
	}
}

// TestLoadSnapshot reads the counts while goroutines count, with and without stripes. No count is negative, without
// stripes Issued is the sum of the others, and the counts are exact at rest (T-LRS-3).
func TestLoadSnapshot(t *testing.T) {
	const goroutines = 4
	rounds := 50_000
	if testing.Short() || raceEnabled {
		rounds = 5000
	}
	for _, striped := range []bool{false, true} {
		var (
			l             Load
			b             Breaker
			calls, reader sync.WaitGroup
			stopped       atomic.Bool
		)
		for g := range goroutines {
			calls.Go(func() {
				var e EndpointState
				e.Bind(NewBinding(&l, &b, false))
				for i := range rounds {
					if striped && l.striped.Load() == 0 {
						l.stripe(2)
					}
					b.Acquire(goroutines)
					l.issue()
					e.Finish(CallResult((g + i) % 4))
				}
			})
		}
		reader.Go(func() {
			for !stopped.Load() {
				s := l.Snapshot()
				if s.InProgress > goroutines*(batch+uint64(rounds)) || !striped && s.Issued < s.OK+s.Failed+s.InProgress {
					t.Errorf("striped %v: snapshot %+v has a negative count, or counts that do not add up", striped, s)
					return
				}
			}
		})
		calls.Wait()
		stopped.Store(true)
		reader.Wait()
		quarter := uint64(goroutines * rounds / 4)
		if s, want := l.Snapshot(), (LoadSnapshot{Issued: 3 * quarter, OK: quarter, Failed: quarter}); s != want || b.InFlight() != 0 {
			t.Errorf("striped %v: at rest %+v and %d in flight, want %+v and 0", striped, s, b.InFlight(), want)
		}
	}
}

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
