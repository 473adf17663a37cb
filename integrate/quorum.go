// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"time"

	"github.com/xdslb/xdslb/picker"
)

// A priority that starts with a bounded rate of connections gets RPCs when quorumSize
// endpoints are READY, or all that have not failed, or quorumTime after the first, so
// that the RPCs that waited do not all go to that one.
const (
	quorumSize = 8
	quorumTime = 20 * time.Millisecond
)

// quorum says whether a priority has enough READY endpoints to begin with.
//
//	         first READY              enough are READY, time is up
//	none ──────────────────► gathering ─────────────────────────────► there
//	  ▲                          │                                      │
//	  └──────────────────────────┴──────────────────────────────────────┘ reset
//
// Once it is there it stays, whatever becomes of the endpoints, until the priority is
// dormant. Without Config.ConnectRate it is there from the first READY endpoint on.
//
// The balancer's mutex guards all fields and methods.
type quorum struct {
	there bool
	timer *time.Timer // runs while gathering
}

// observe follows the counts of the priority's endpoints.
func (q *quorum) observe(p *priority) {
	ready := p.counts[picker.Ready]
	if q.there || ready == 0 {
		return
	}
	b := p.cluster.lb
	switch most := ready + p.counts[picker.Connecting] + p.counts[picker.Idle]; {
	case b.opts.ConnectRate <= 0, p.delegates(), p.onDemand(), ready >= min(quorumSize, most):
		q.complete()
	case q.timer == nil:
		b.afterLocked(quorumTime, &q.timer, func() {
			q.there = true
			p.cluster.onChange(p)
			b.publishSoonLocked()
		})
	}
}

// gathering reports whether READY endpoints wait for more.
func (q *quorum) gathering() bool { return q.timer != nil }

// complete lets the priority get RPCs with what is READY.
func (q *quorum) complete() {
	halt(&q.timer)
	q.there = true
}

// reset has the quorum gathered anew when the priority starts again.
func (q *quorum) reset() {
	halt(&q.timer)
	q.there = false
}
