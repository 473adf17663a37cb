// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"slices"
	"testing"

	"github.com/xdslb/xdslb/picker"
)

// TestSubset: a channel connects to as many endpoints of a priority as the
// policy says, of all localities together, and to the same ones after an
// update; another channel has others (A68).
func TestSubset(t *testing.T) {
	numbers := func(from, n int) (out []int) {
		for i := range n {
			out = append(out, from+i)
		}
		return out
	}
	subset := func(endpoints ...[]picker.Endpoint) *picker.Config {
		c := clusterOf("c", prio(endpoints...))
		c.Leaves[0].Policy.Subset = 8
		return configOf(c)
	}
	whole := subset(eps(numbers(0, 60)...), eps(numbers(60, 40)...))
	b, cc := newTestLB(t, Config{})
	b.Update(whole)
	mine := cc.open(100)
	if len(mine) != 8 {
		t.Fatalf("of 100 endpoints the channel connects to %d, want 8", len(mine))
	}
	for _, n := range mine {
		cc.conn(t, n).to(ready)
	}
	wantPick(t, b, mine...)

	// Without one of its endpoints the channel takes another and keeps seven.
	left := slices.DeleteFunc(numbers(0, 100), func(n int) bool { return n == mine[0] })
	b.Update(subset(eps(left...)))
	b.flush()
	now := cc.open(100)
	kept := 0
	for _, n := range now {
		if slices.Contains(mine, n) {
			kept++
		}
	}
	if len(now) != 8 || kept != 7 || slices.Contains(now, mine[0]) {
		t.Errorf("after endpoint %d left the channel has %v of %v, want 7 of them and one other", mine[0], now, mine)
	}

	other, occ := newTestLB(t, Config{})
	other.Update(whole)
	if slices.Equal(occ.open(100), mine) {
		t.Errorf("two channels have the same subset %v", mine)
	}
}
