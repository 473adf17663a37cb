// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"container/heap"
	"time"
)

// A clock is the time source of the server model and the arrivals: the system's clock, which is
// virtual in a bubble of testing/synctest, or a list of events.
type clock interface {
	// now returns the time since the start of the run.
	now() time.Duration
	// after calls f in d, unless the timer is stopped before.
	after(d time.Duration, f func()) timer
}

type timer interface{ Stop() bool }

// systemClock uses package time.
type systemClock struct{ start time.Time }

func (c systemClock) now() time.Duration                    { return time.Since(c.start) }
func (c systemClock) after(d time.Duration, f func()) timer { return time.AfterFunc(d, f) }

// simulation is a clock without goroutines: events in chronological order. It is not safe for
// concurrent use.
type simulation struct {
	time   time.Duration
	events eventHeap
	serial uint64
}

type event struct {
	at     time.Duration
	serial uint64 // orders simultaneous events
	f      func() // nil if it was stopped or has run
}

// Stop implements timer.
func (e *event) Stop() bool {
	was := e.f != nil
	e.f = nil
	return was
}

func (s *simulation) now() time.Duration { return s.time }

func (s *simulation) after(d time.Duration, f func()) timer {
	s.serial++
	e := &event{at: s.time + max(0, d), serial: s.serial, f: f}
	heap.Push(&s.events, e)
	return e
}

// run runs the events up to a time.
func (s *simulation) run(until time.Duration) {
	for len(s.events) > 0 && s.events[0].at < until {
		e := heap.Pop(&s.events).(*event)
		if f := e.f; f != nil {
			s.time, e.f = e.at, nil
			f()
		}
	}
	s.time = until
}

type eventHeap []*event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].serial < h[j].serial
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(*event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}
