// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"math"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// connectBurst is how many endpoints a pacer connects at once, before the rate counts:
// twice what picks start with.
const connectBurst = 2 * quorumSize

// pacer has the endpoints of a priority connect at a bounded rate, in an order of the
// channel's own, so that the clients of a fleet that start together do not all connect to
// the same endpoint at once: see Config.ConnectRate.
//
//	       start                    none is left, stop
//	idle ─────────► endpoints wait ─────────────────────► idle
//	                  │        ▲
//	                  └────────┘ due: one connects
//
// It is a token bucket of connectBurst connections. While the priority is being tried (A56) it
// is as fast as it takes for all to be asked within half the failover timeout. An attempt
// that fails before the priority has its quorum gives its token back, so that a set of
// dead endpoints is found out at once.
//
// An endpoint that waits is IDLE without a connection, as in a priority that is dormant.
// An update that changes the set starts the pacer again.
//
// The balancer's mutex guards all fields and methods.
type pacer struct {
	waiting []slot  // in random order; the last is next
	started int     // how many waited at first
	tokens  float64 // in the bucket
	at      int64   // when there were so many, as of lb.now; 0 before the first start
	timer   *time.Timer
}

// start connects the priority's endpoints that are IDLE: as many as the bucket has tokens
// for, and the others later; all at once if there is no rate.
func (c *pacer) start(p *priority) {
	c.stop()
	for _, l := range p.localities {
		for i, e := range l.endpoints {
			if c.paces(p, e) {
				c.waiting = append(c.waiting, slot{l, i})
			} else {
				e.connect(p.cluster.lb, l.cfg.At(i))
			}
		}
	}
	for i := len(c.waiting) - 1; i > 0; i-- {
		k := p.cluster.lb.draw(uint32(i + 1))
		c.waiting[i], c.waiting[k] = c.waiting[k], c.waiting[i]
	}
	c.started = len(c.waiting)
	c.run(p)
}

// paces reports whether an endpoint waits for its turn.
func (*pacer) paces(p *priority, e *endpoint) bool {
	return p.cluster.lb.opts.ConnectRate > 0 && e.Connectivity == picker.Idle && !e.Draining
}

// run connects the endpoints that are due.
func (c *pacer) run(p *priority) {
	halt(&c.timer)
	b := p.cluster.lb
	for c.refill(p); len(c.waiting) > 0; {
		if c.tokens < 1 {
			wait := (1 - c.tokens) * float64(c.interval(p))
			b.afterLocked(time.Duration(math.Ceil(wait)), &c.timer, func() { c.run(p) })
			return
		}
		next := c.waiting[len(c.waiting)-1]
		c.waiting = c.waiting[:len(c.waiting)-1]
		if e := next.loc.endpoints[next.i]; c.paces(p, e) {
			e.connect(b, next.loc.cfg.At(next.i))
			c.tokens--
		}
	}
	c.waiting = nil
}

// refill puts the tokens into the bucket that are due.
func (c *pacer) refill(p *priority) {
	b, due := p.cluster.lb, math.Inf(1)
	now := b.now()
	if interval := c.interval(p); c.at > 0 && interval > 0 {
		due = float64(now-c.at) / float64(interval)
	}
	c.tokens, c.at = min(c.tokens+due, float64(b.burst)), now
}

// interval is the time between two connections.
func (c *pacer) interval(p *priority) time.Duration {
	opts := p.cluster.lb.opts
	interval := time.Duration(min(float64(time.Second)/opts.ConnectRate, float64(time.Hour)))
	if p.phase == trying && c.started > 0 {
		interval = min(interval, opts.FailoverTimeout/2/time.Duration(c.started))
	}
	return interval
}

// failed follows an attempt that failed.
func (c *pacer) failed(p *priority) {
	if len(c.waiting) > 0 && p.counts[picker.Ready] < quorumSize {
		c.tokens++
		c.run(p)
	}
}

// stop lets nobody wait any more. It reports whether somebody did, who is to be asked
// when the pacer starts again.
func (c *pacer) stop() (waited bool) {
	halt(&c.timer)
	waited = len(c.waiting) > 0
	c.waiting = nil
	return waited
}
