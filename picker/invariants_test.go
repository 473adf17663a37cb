// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package picker

import "testing"

// TestSharedLoad checks that localities of a priority do not share a Load, since a Load is the
// position in the sequence of one locality (EDF-2).
func TestSharedLoad(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)), zone("b", 1, endpoints(1, 1)))
	first, second := &w.states[0].Localities[0], &w.states[0].Localities[1]
	second.Load = first.Load
	second.Endpoints.State(0).binding = first.Endpoints.State(0).binding
	defer func() {
		if recover() == nil {
			t.Error("Build accepts localities that share a Load")
		}
	}()
	w.build(t)
}
