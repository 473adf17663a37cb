// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"slices"

	"github.com/xdslb/xdslb/edf"
)

// EDF, round robin and client-side WRR pick the endpoints of a group in EDF order.
// They differ in the weights. Pick first is the sequence of a single endpoint.
//
// The position in the sequence is a count of issued RPCs, so a single addition counts the RPC
// and determines its pick (D9a). A group that is a locality uses the count of its Load. A flat
// group of several localities has a count of its own, and the RPC is counted again at the
// locality of its endpoint (T-LRS-5).

// sequence makes g the sequence of the READY endpoints of in. before is the group's previous
// form, or nil.
func (b *builder) sequence(g, before *group, in *groupInput, c *cluster, policy *Policy) error {
	weights := b.endpointWeights(in, policy)
	g.scaled = b.scaled
	if in.load != nil {
		return b.schedule(g, before, in.load, weights)
	}
	g.endpoints = in.endpoints.(StateSlice)
	return b.schedule(g, before, c.cursor, weights)
}

// schedule gives g the sequence of weights, whose position is counted by cursor. The sequence
// continues if the same endpoints have a weight as before. Otherwise it starts at a random
// position (D2).
//
// Continuing is correct because before has the same counter: groups are found by their Load
// (groupOf). With pick first the counter may differ, but a sequence of one endpoint is the
// same at each position.
func (b *builder) schedule(g *group, before *group, cursor *Load, weights []uint32) (err error) {
	g.cursor = cursor
	same, active := false, false
	if before != nil && before.schedule != nil {
		same, active = before.schedule.Compare(weights)
	}
	switch {
	case same:
		g.schedule = before.schedule
	case active:
		g.schedule, err = before.schedule.Reweigh(weights, cursor.issued.Load())
	default:
		g.schedule, err = edf.Config{Weights: weights, Start: b.start(), Base: cursor.issued.Load()}.Schedule()
	}
	return err
}

// pickFirst makes g the sequence of one endpoint of in (A62): the endpoint selected before, as
// long as it is READY, otherwise the first READY one in the list. The caller shuffles the list,
// connects to one endpoint after the other and keeps TRANSIENT_FAILURE until an endpoint is
// READY.
func (b *builder) pickFirst(g, before *group, in *groupInput, _ *cluster, _ *Policy) error {
	k := slices.Index(in.states, Ready)
	if before != nil && before.selected != nil {
		for i, s := range in.states {
			if s == Ready && in.endpoints.State(i) == before.selected {
				k = i
			}
		}
	}
	g.selected = in.endpoints.State(k)
	g.first += int32(k)
	return b.schedule(g, before, g.selected.binding.load, []uint32{1})
}
