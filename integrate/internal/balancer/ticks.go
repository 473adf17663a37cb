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
	if period == 0 {
		serial.Halt(&c.weightTimer)
	} else if c.weightTimer == nil {
		c.entry.after(period, &c.weightTimer, func() {
			if c.inUse != nil && c.inUse.updateWeights() { // an update may not have been published yet
				c.inUse.note(picks)
			}
			c.scheduleWeights()
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
