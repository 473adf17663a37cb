// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"context"
	"time"
)

// paceEvery, paceBurst and pacePause are what a Pace goes by: 5000 events in a second, and
// 1000 at once.
const (
	paceEvery = 200 * time.Microsecond
	paceBurst = 1000 * paceEvery
	pacePause = 5 * time.Millisecond // at least, as short ones are not exact
)

// A Pace slows down who has very many events to handle, each of which costs little. The zero
// value is ready. It is for one goroutine.
type Pace struct{ due time.Time }

// Wait waits until there may be another event, or ctx ends.
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
