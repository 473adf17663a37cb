// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "slices"

// pickFirst makes g the sequence of one endpoint of p (A62): the one that it was
// before, as long as that is READY, or else the first in the list that is. To
// shuffle the list, to connect to one endpoint after the other and no further, and
// to have the failure stick is up to the caller.
func (b *builder) pickFirst(g *group, before *group, p *pool) error {
	k := slices.Index(p.states, Ready)
	if before != nil && before.only != nil {
		if i := slices.Index(p.endpoints, before.only); i >= 0 && p.states[i] == Ready {
			k = i
		}
	}
	g.only = p.endpoints[k]
	g.first += int32(k)
	return b.schedule(g, before, &g.only.load.issued, []uint32{1})
}
