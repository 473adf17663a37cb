// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import "time"

// Bounds of a journal: how many events a channel remembers, how many of the latest a
// new one may be counted with, and for how long after the first.
const (
	journalSize   = 128
	journalRepeat = 8
	journalSpan   = time.Minute
)

// journal is a channel's latest events. The balancer's mutex guards it.
type journal struct {
	ring  []Event // grows up to journalSize
	added uint64
}

// repeats reports whether an event is one more like another of the latest, and counts it
// there: events of connections and ejections, and configurations that change no more than
// endpoints. Others stand alone, and what comes after them is not counted with what was
// before.
func (j *journal) repeats(e *Event) bool {
	if !e.repeatable() {
		return false
	}
	for i := j.added; i > 0 && i+journalRepeat > j.added && i+uint64(len(j.ring)) > j.added; i-- {
		last := &j.ring[(i-1)%journalSize]
		if !last.repeatable() {
			return false
		}
		if last.Kind == e.Kind && last.Cluster == e.Cluster {
			if e.Time.Sub(last.Time) >= journalSpan {
				return false
			}
			last.Count++
			last.Last, last.Err = e.Time, e.Err
			last.Changes.add(&e.Changes)
			return true
		}
	}
	return false
}

// repeatable reports whether the event may be counted with others like it.
func (e *Event) repeatable() bool {
	switch e.Kind {
	case ConfigurationApplied:
		return e.Changes.endpointsOnly()
	case TargetFailed, PriorityChanged, ClusterFailed, ClusterRecovered:
		return false
	}
	return true
}

// add adds an event, for which the oldest one goes if there are journalSize.
func (j *journal) add(e *Event) {
	if len(j.ring) < journalSize {
		j.ring = append(j.ring, *e)
	} else {
		j.ring[j.added%journalSize] = *e
	}
	j.added++
}

// events returns the events, oldest first.
func (j *journal) events() []Event {
	if len(j.ring) < journalSize {
		return append([]Event(nil), j.ring...)
	}
	at := j.added % journalSize
	return append(append(make([]Event, 0, journalSize), j.ring[at:]...), j.ring[:at]...)
}
