// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/integrate/internal/outlier"
	"github.com/xdslb/xdslb/picker"
)

// taps is who else hears how the RPCs of an endpoint end, besides its counters.
// Most endpoints have none, and their RPCs look no further than a nil pointer. It
// is immutable; endpoints may share it.
type taps struct {
	orca *orcaSink     // of the locality, if its load is reported (A85)
	host *outlier.Host // if outliers are detected (A50)
}

// note passes on the end of an RPC. An RPC that was never sent says nothing of
// the endpoint.
func (t *taps) note(info *balancer.DoneInfo, result picker.CallResult) {
	if t.host != nil && result != picker.CallVoid {
		t.host.Count(result == picker.CallOK)
	}
	if info.ServerLoad != nil && t.orca != nil {
		t.orca.note(info.ServerLoad)
	}
}

// retap changes who hears of the endpoint's RPCs. b.mu is held.
func (e *endpoint) retap(change func(*taps)) {
	var next taps
	if t := e.taps.Load(); t != nil {
		next = *t
	}
	change(&next)
	if next == (taps{}) {
		e.taps.Store(nil)
		return
	}
	e.taps.Store(&next)
}
