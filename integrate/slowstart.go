// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import "time"

// While endpoints are in their slow start, their share is what it was when the
// snapshot was built: twenty builds per window follow the curve closely, as long as
// they are neither so close that they cost anything nor so far apart that one sees
// the steps.
const (
	warmingSteps = 20
	minWarming   = 100 * time.Millisecond
	maxWarming   = time.Second
)

// paceWarming has the cluster compiled anew every so often while endpoints warm up.
// b.mu is held.
func (c *cluster) paceWarming(warming bool) {
	if !warming {
		halt(&c.warming)
	} else if c.warming == nil {
		window := c.inUse.leaf.cfg.Policy.SlowStart.Window
		c.lb.after(min(max(window/warmingSteps, minWarming), maxWarming), &c.warming, func() {
			c.dirty = true
			c.lb.publishSoon()
		})
	}
}
