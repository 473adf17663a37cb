// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"sync/atomic"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
)

// watchTime is how long the RPCs of endpoints are counted after the latest status request.
const watchTime = time.Minute

// endpointCalls counts the finished RPCs of an endpoint while the channel is watched.
type endpointCalls struct{ ok, failed atomic.Uint64 }

// count counts an RPC. An RPC that was never sent is ignored.
func (c *endpointCalls) count(r picker.CallResult) {
	switch r {
	case picker.CallOK:
		c.ok.Add(1)
	case picker.CallFailed:
		c.failed.Add(1)
	}
}

// callWatch controls whether the RPCs of a channel are counted by endpoint:
//
//	       watchCalls                 watchCalls
//	off ──────────────────► on, timer ◄───┐
//	 ▲                          │ └───────┘
//	 └──────────────────────────┘
//	   watchTime without a status request
//
// The balancer's mutex guards it.
type callWatch struct {
	since time.Time // zero means off
	timer *time.Timer
}

func (w *callWatch) on() bool { return !w.since.IsZero() }

// watchCalls counts RPCs by endpoint for a while: O(endpoints) unless they are counted already.
func watchCalls(b *Balancer) {
	if !b.watch.on() {
		b.watch.since, b.watched = time.Now(), true
		setCalls(b, func() *endpointCalls { return new(endpointCalls) })
	}
	serial.Halt(&b.watch.timer)
	b.rt.After(watchTime, &b.watch.timer, func() { unwatchCalls(b) })
}

// unwatchCalls stops counting.
func unwatchCalls(b *Balancer) {
	serial.Halt(&b.watch.timer)
	b.watch.since, b.watched = time.Time{}, false
	setCalls(b, func() *endpointCalls { return nil })
}

func setCalls(b *Balancer, calls func() *endpointCalls) {
	for _, c := range b.clusters {
		for _, l := range c.leaves {
			for e := range l.endpoints {
				e.updateObservers(func(o *observers) { o.calls = calls() })
			}
		}
	}
}
