// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package alike bounds how many lines of a log that differ are about the same kind of thing.
// Thousands of resources or clusters can go wrong at once, and the lines about them would leave
// no room for others.
package alike

import (
	"log/slog"
	"time"
)

// Max lines of a kind are written in each Interval.
const (
	Max      = 32
	Interval = time.Minute
)

// A Limiter counts lines by kind, of which there must be few: a count is kept for as long as the
// Limiter. The zero value is ready. Its user's lock guards it.
type Limiter[Kind comparable] struct {
	counts map[Kind]*count
}

// count is how many lines of a kind were written since a time, and left out.
type count struct {
	since          time.Time
	lines, leftOut int
}

// Due counts a line. If it may be written, wait is 0, and attrs are to be said of those that may
// not: the last line before that says for how long, and the first one afterwards how many there
// were. Otherwise wait is when the next one may be written. O(1).
func (l *Limiter[Kind]) Due(kind Kind, now time.Time) (attrs []slog.Attr, wait time.Duration) {
	c := l.counts[kind]
	if c == nil {
		if l.counts == nil {
			l.counts = map[Kind]*count{}
		}
		c = &count{since: now}
		l.counts[kind] = c
	}
	left := Interval - now.Sub(c.since)
	if left <= 0 {
		if c.leftOut > 0 {
			attrs = append(attrs, slog.Int("left_out_alike", c.leftOut))
		}
		*c, left = count{since: now}, Interval
	}
	if c.lines == Max {
		c.leftOut++
		return nil, left
	}
	if c.lines++; c.lines == Max {
		attrs = append(attrs, slog.Duration("no_more_like_this_for", left))
	}
	return attrs, 0
}
