// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import "github.com/xdslb/xdslb/picker"

// A counting selects what is counted for each endpoint, as its policy requires. If the
// selection changes, a new endpoint replaces the endpoint, so that the end of each RPC is
// counted in the same way as its start.
type counting struct {
	inFlight bool // the RPCs in flight
	timed    bool // their times
	breaker  bool // the RPCs in flight of the cluster
}

func countingOf(l *picker.Leaf) counting {
	return counting{l.Policy.CountsInFlight(), l.Policy.TimesRPCs(), l.CountsRPCs()}
}

// binding returns the binding of a locality with this counting. It requests a clock if RPCs are
// timed.
func (c counting) binding(load *picker.Load, breaker *picker.Breaker, clock func() *picker.Clock) *picker.Binding {
	if c.timed {
		return picker.NewTimedBinding(load, breaker, clock())
	}
	return picker.NewBinding(load, breaker, c.inFlight)
}
