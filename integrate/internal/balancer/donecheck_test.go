// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"testing"
)

// TestDoneIdentifiesRPC checks the version of gRPC of this module: each RPC has a Done channel of its own,
// which the picks for its attempts have.
func TestDoneIdentifiesRPC(t *testing.T) {
	parent, picks := observePicks()
	if !identifies(parent, picks) || !doneIdentifiesRPC() {
		t.Errorf("Done channels of picks are %v, that of the application's context %v", picks, parent)
	}
	for method, dones := range picks {
		if len(dones) < 3 {
			t.Errorf("%d picks for %s, want at least 3: two for the first attempt and one for the second", len(dones), method)
		}
	}
}

// TestOtherDone checks that a version of gRPC with other Done channels is noticed.
func TestOtherDone(t *testing.T) {
	a, b, parent := make(chan struct{}), make(chan struct{}), make(chan struct{})
	type dones = []<-chan struct{}
	for name, rpcs := range map[string]map[string]dones{
		"no pick":                        {},
		"one pick for each RPC":          {"1": {a}, "2": {b}},
		"one RPC":                        {"1": {a, a}},
		"RPCs share a channel":           {"1": {a, a}, "2": {a, a}},
		"the application's":              {"1": {parent, parent}, "2": {b, b}},
		"none":                           {"1": {nil, nil}, "2": {b, b}},
		"one for each pick":              {"1": {a, b}, "2": {b, a}},
		"another one for a later pick":   {"1": {a, a, b}, "2": {b, b, b}},
		"the application's for one pick": {"1": {a, parent, a}, "2": {b, b}},
	} {
		if identifies(parent, rpcs) {
			t.Errorf("%s: seems to identify RPCs", name)
		}
	}
	if !identifies(parent, map[string]dones{"1": {a, a}, "2": {b, b, b}}) {
		t.Error("a channel for each RPC does not seem to identify it")
	}
}

// TestRandomHashPerPick checks that no hash is kept if contexts do not identify RPCs.
func TestRandomHashPerPick(t *testing.T) {
	h := &randomHashes{perPick: true}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for drawn := range uint64(3) {
		if got := h.Of(ctx, drawn, true); got != drawn || h.count.Load() != 0 {
			t.Errorf("the hash of a pick is %d, want %d; %d are kept", got, drawn, h.count.Load())
		}
	}
}
