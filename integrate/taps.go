// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"cmp"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/integrate/internal/outlier"
	"github.com/xdslb/xdslb/picker"
)

// taps is who else hears how the RPCs of an endpoint end, besides its counters.
// Most endpoints have none, and their RPCs look no further than a nil pointer. It
// is immutable; endpoints may share it.
type taps struct {
	orca    *orcaSink     // of the locality, if its load is reported (A85)
	host    *outlier.Host // if outliers are detected (A50)
	weigher *weigher      // if RPCs go by what endpoints report (A58)
}

// note passes on the end of an RPC. An RPC that was never sent says nothing of
// the endpoint.
func (t *taps) note(info *balancer.DoneInfo, result picker.CallResult) {
	if t.host != nil && result != picker.CallVoid {
		t.host.Count(result == picker.CallOK)
	}
	if info.ServerLoad != nil {
		if t.orca != nil {
			t.orca.note(info.ServerLoad)
		}
		if t.weigher != nil {
			t.weigher.note(info.ServerLoad)
		}
	}
}

// tap gives an endpoint the taps that the leaf's configuration asks for. b.mu is
// held.
func (l *leaf) tap(e *endpoint) {
	detects, weighs := l.detects(), l.cfg.Policy.Kind == picker.PolicyClientWRR
	if !detects && !weighs {
		return
	}
	e.retap(func(t *taps) {
		if detects && t.host == nil {
			t.host = new(outlier.Host)
		}
		if weighs && t.weigher == nil {
			t.weigher = &weigher{b: e.loc.prio.cluster.lb, leaf: l}
		}
	})
}

// inherit takes over what was known of the endpoint when it was another one. b.mu is
// held.
func (e *endpoint) inherit(from *endpoint) {
	e.Ejected, e.ReadySince = from.Ejected, from.ReadySince
	was := from.taps.Load()
	if was == nil || was.host == nil && was.weigher == nil {
		return
	}
	e.retap(func(t *taps) { t.host, t.weigher = cmp.Or(was.host, t.host), cmp.Or(was.weigher, t.weigher) })
	if was.weigher != nil {
		e.SetWeight(was.weigher.told)
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
