// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"time"

	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
)

// This file has the timers that render a cluster again while its picks depend on time.

// scheduleWeights keeps a timer of the update period running while weights matter: the cluster
// uses them, and has at least two endpoints to choose from.
func (c *cluster) scheduleWeights() {
	period := time.Duration(0)
	if c.inUse != nil && c.inUse.counts[picker.Ready] > 1 {
		if how := c.inUse.leaf.wrr.Load(); how != nil {
			period = how.UpdatePeriod
		}
	}
	c.updateEvery(period, &c.weightTimer, (*priority).updateWeights, (*cluster).scheduleWeights)
}

// updateEvery keeps a timer running that updates the priority in use after a period, and has
// the cluster compiled again if that reports a change; then it is rescheduled. A period of 0
// means never.
func (c *cluster) updateEvery(period time.Duration, timer **time.Timer, update func(*priority) (changed bool), schedule func(*cluster)) {
	if period == 0 {
		serial.Halt(timer)
	} else if *timer == nil {
		c.entry.after(period, timer, func() {
			if c.inUse != nil && update(c.inUse) { // an update may not have been published yet
				c.inUse.note(picks)
			}
			schedule(c)
		})
	}
}

// While endpoints are in slow start, their share is fixed when the snapshot is built: twenty
// builds per window follow the curve closely. The interval is bounded below by the cost of a
// build, and above so that the steps remain invisible.
const (
	slowStartSteps   = 20
	minSlowStartStep = 100 * time.Millisecond
	maxSlowStartStep = time.Second
)

// scheduleSlowStart has the cluster compiled periodically while endpoints are in slow start.
func (c *cluster) scheduleSlowStart(inSlowStart bool) {
	if !inSlowStart {
		serial.Halt(&c.slowStartTimer)
	} else if c.slowStartTimer == nil {
		window := c.inUse.leaf.cfg.Policy.SlowStart.Window
		c.entry.after(min(max(window/slowStartSteps, minSlowStartStep), maxSlowStartStep), &c.slowStartTimer, func() {
			if c.inUse != nil {
				c.inUse.note(picks)
			}
		})
	}
}

// scheduleLoads keeps a timer of the update period running while utilizations matter: the
// cluster uses them, and has at least two localities to choose from.
func (c *cluster) scheduleLoads() {
	period := time.Duration(0)
	if c.inUse != nil && c.inUse.counts[picker.Ready] > 0 && len(c.inUse.localities) > 1 {
		if how := c.inUse.leaf.loadAware.Load(); how != nil {
			period = how.UpdatePeriod
		}
	}
	c.updateEvery(period, &c.loadTimer, (*priority).updateUtilizations, (*cluster).scheduleLoads)
}
