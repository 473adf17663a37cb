// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"context"
	"time"
)

// paceEvery and paceBurst limit a Pace to 5000 events per second with bursts of 1000.
const (
	paceEvery = 200 * time.Microsecond
	paceBurst = 1000 * paceEvery
	pacePause = 5 * time.Millisecond // minimum, since shorter timers are inaccurate
)

// A Pace limits the rate of very frequent events that are individually cheap. The zero value is
// ready to use. It is not safe for concurrent use.
type Pace struct{ due time.Time }

// Wait waits until the next event is allowed, or ctx ends.
func (p *Pace) Wait(ctx context.Context, now time.Time) {
	if earliest := now.Add(-paceBurst); p.due.Before(earliest) {
		p.due = earliest
	}
	p.due = p.due.Add(paceEvery)
	if wait := p.due.Sub(now); wait > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(max(wait, pacePause)):
		}
	}
}
