// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package weights

import (
	"math"
	"net/netip"
	"testing"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// locality returns a locality of endpoints with weights; 0 is a draining endpoint of weight 100.
func locality(weight uint32, weights ...uint32) picker.Locality {
	var all []picker.Endpoint
	for i, w := range weights {
		e := picker.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(weight), byte(i)}), 1), Weight: w}
		if w == 0 {
			e.Weight, e.Health = 100, picker.Draining
		}
		all = append(all, e)
	}
	return picker.Locality{Weight: weight, Endpoints: persistent.Of(all...)}
}

// TestShifts checks the expected shares with and without endpoint weights, within the share of
// the locality, and without draining endpoints.
func TestShifts(t *testing.T) {
	leaf := func(kind picker.PolicyKind, priorities ...picker.Priority) picker.Leaf {
		return picker.Leaf{Name: "leaf", Policy: picker.Policy{Kind: kind}, Priorities: priorities}
	}
	equal := picker.Priority{Localities: []picker.Locality{locality(1, 7, 7)}}
	c := &picker.Cluster{Name: "c", Leaves: []picker.Leaf{
		leaf(picker.PolicyEDF, equal, picker.Priority{Localities: []picker.Locality{locality(3, 1, 3, 0), locality(1, 5, 5)}}),
		leaf(picker.PolicyRingHash, picker.Priority{Localities: []picker.Locality{locality(1, 1, 3)}}),
		leaf(picker.PolicyEDF, picker.Priority{Localities: []picker.Locality{locality(1, make40()...)}}),
	}}
	all := Shifts(c)
	if len(all) != 2 || all[0].Cluster != "leaf" || all[0].Priority != 1 || all[1].Priority != 3 {
		t.Fatalf("%+v, want shifts of priorities 1 and 3", all)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("moved", all[0].Moved, .75*.25)
	if e := all[0].Endpoints; len(e) != 2 {
		t.Errorf("endpoints %+v, want 2", e)
	} else {
		near("share in stock", e[0].Stock, .75/2)
		near("share of weight 1", e[0].Xdslb, .75/4)
		near("share of weight 3", e[1].Xdslb, .75*3/4)
	}
	if e := all[1].Endpoints; len(e) != MaxShifted || e[0].Weight != 400 {
		t.Errorf("endpoints %+v, want %d with the heaviest first", e, MaxShifted)
	}
}

// make40 returns 40 weights, of which the last is the largest.
func make40() (w []uint32) {
	for range 39 {
		w = append(w, 1)
	}
	return append(w, 400)
}
