// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/picker"
)

func series(from, n int) (numbers []int) {
	for i := range n {
		numbers = append(numbers, from+i)
	}
	return numbers
}

// TestOverprovisioning: with the factor on, a priority that has lost too many
// endpoints shares the load with the next ones as Envoy's document on load
// balancing priorities has it, and takes it back; with it off it keeps
// everything (A27-EDSP-4).
func TestOverprovisioning(t *testing.T) {
	const n = 20
	for _, c := range []struct {
		factor, failed0, failed1 int
		want                     [2]float64 // shares of priorities 0 and 1
	}{
		{0, 19, 0, [2]float64{1, 0}},
		{140, 0, 0, [2]float64{1, 0}},
		{140, 5, 0, [2]float64{1, 0}},
		{140, 10, 0, [2]float64{.7, .3}},
		{140, 15, 0, [2]float64{.35, .65}},
		{140, 15, 12, [2]float64{.35, .56}}, // and .09 for priority 2
		{100, 10, 0, [2]float64{.5, .5}},
		{140, 20, 0, [2]float64{0, 1}},
		{140, 19, 19, [2]float64{.07, .07}},
	} {
		b, cc := newTestLB(t, Config{OverprovisioningFactor: uint32(c.factor)})
		zone := func(p picker.Priority, zones ...string) picker.Priority {
			for i := range p.Localities {
				p.Localities[i].ID.Zone = zones[i]
			}
			return p
		}
		first := prio(eps(series(0, 12)...), eps(series(12, 8)...))
		first.Localities[1].Weight = 3
		b.Update(configOf(clusterOf("c", first,
			zone(prio(eps(series(n, n)...)), "b"),
			zone(prio(eps(series(2*n, n)...)), "c"))))
		fail := func(from, failed int) {
			for i := range n {
				if cc.has(from + i) {
					if i < failed {
						cc.conn(t, from+i).to(failure)
					} else {
						cc.conn(t, from+i).to(ready)
					}
				}
			}
		}
		fail(0, c.failed0)
		if needed := c.want[1] > 0; cc.has(n) != needed {
			t.Errorf("%+v: priority 1 connects: %v, want %v", c, !needed, needed)
		}
		fail(n, c.failed1)
		fail(2*n, 0)
		got := b.share(t, n)
		got1 := b.share(t, 2*n) - got
		const tolerance = .025 // seven deviations of a half of 20,000 picks
		if math.Abs(got-c.want[0]) > tolerance || math.Abs(got1-c.want[1]) > 2*tolerance {
			t.Errorf("%+v: the first two priorities got %.3f and %.3f of the picks, want %v", c, got, got1, c.want)
		}
		fail(0, 0)
		if got := b.share(t, n); got != 1 {
			t.Errorf("%+v: after recovery priority 0 got %.3f of the picks, want all", c, got)
		}
		if c.want[1] > 0 && !cc.has(n) {
			t.Errorf("%+v: after recovery the connections of priority 1 were closed at once", c)
		}
	}
}

// TestOverprovisioningStale: a priority shares the load only as long as it can be
// picked from, also while one that an update has put on top connects, and when one of
// those that share it is the one that connects.
func TestOverprovisioningStale(t *testing.T) {
	a, b, fresh := zone("a", eps(0, 1)), zone("b", eps(2, 3)), zone("fresh", eps(4))
	for name, c := range map[string]struct {
		change func(t *testing.T, b *testLB, cc *fakeCC)
		want   string // what the zones' shares come to; empty if RPCs wait
	}{
		"nothing": {func(*testing.T, *testLB, *fakeCC) {}, "70 30"},
		"the first reconnects": {func(t *testing.T, b *testLB, cc *fakeCC) {
			cc.conn(t, 0).to(idle)
		}, ""},
		"another on top": {func(t *testing.T, l *testLB, cc *fakeCC) {
			l.Update(configOf(clusterOf("c", fresh, a, b)))
		}, "70 30"},
		"another on top, the second fails": {func(t *testing.T, l *testLB, cc *fakeCC) {
			l.Update(configOf(clusterOf("c", fresh, a, b)))
			l.flush()
			cc.conn(t, 2).to(failure)
			cc.conn(t, 3).to(failure)
		}, "100 0"},
		"another on top, the second is gone": {func(t *testing.T, l *testLB, cc *fakeCC) {
			l.Update(configOf(clusterOf("c", fresh, a)))
		}, "100 0"},
		"another on top, the first recovers": {func(t *testing.T, l *testLB, cc *fakeCC) {
			l.Update(configOf(clusterOf("c", fresh, a, b)))
			l.flush()
			cc.conn(t, 1).to(ready)
		}, "100 0"},
	} {
		l, cc := newTestLB(t, Config{OverprovisioningFactor: 140})
		l.Update(configOf(clusterOf("c", a, b)))
		cc.conn(t, 0).to(ready)
		cc.conn(t, 1).to(failure)
		cc.conn(t, 2).to(ready)
		cc.conn(t, 3).to(ready)
		l.flush()
		c.change(t, l, cc)
		l.flush()
		if c.want == "" {
			if got, err := l.pick(); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
				t.Errorf("%s: Pick() = %q, %v, want to wait", name, got, err)
			}
			continue
		}
		first := math.Round(l.share(t, 2)*20) * 5 // to 5 %
		if got := fmt.Sprint(first, 100-first); got != c.want {
			t.Errorf("%s: shares %s, want %s", name, got, c.want)
		}
	}
}
