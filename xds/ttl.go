// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/resource"
)

// liveLocked starts the time to live of a resource that came just now; 0 is for ever.
func (s *server) liveLocked(sub *subscription, ttl time.Duration) {
	e := sub.entry
	if ttl == 0 {
		e.ttlTimer.StopLocked()
		return
	}
	version := e.version
	s.startLocked(&e.ttlTimer, ttl, func() {
		over := s.lapse(e.key.typ, e.key.name, version, ttl)
		s.c.logLocked(slog.LevelWarn, "xdslb: the time to live of a resource is over", over)
		sub.received, s.types[e.key.typ].lapsed = false, true
		s.c.failLocked(e, failure{state: DoesNotExist, err: over.err, drop: true, lapsed: true, kind: eventlog.Deleted, from: s.cfg})
		s.notify() // which may be pausing, as long as nothing is missing
		e.authority.checkLocked()
	})
}

// lapse is the fact that a resource was not renewed in time.
func (s *server) lapse(typ resource.Type, name, version string, ttl time.Duration) fact {
	err := fmt.Errorf("xds: %v resource %q of xDS server %q was not renewed within its time to live of %v", typ, name, s.cfg.URI, ttl)
	return fact{server: s.cfg, typ: typ, name: name, version: version, err: err}
}

// liveMemberLocked starts the time to live of a member that came just now; 0 is for ever.
func (s *server) liveMemberLocked(sub *subscription, name string, m *member, ttl time.Duration) {
	if ttl == 0 {
		m.ttl.StopLocked()
		return
	}
	e, col := sub.entry, sub.entry.collection
	s.startLocked(&m.ttl, ttl, func() {
		if col.lapsed == 0 {
			first := s.lapse(e.key.typ, name, m.version, ttl)
			s.startLocked(&col.lapse, lapsePause, func() { s.lapseLocked(sub, first) })
		}
		col.lapsed++
		col.removeLocked(name)
	})
}

// lapsePause is how long members whose time is over wait for others: each change of a
// collection costs O(members), and members that came together go together.
const lapsePause = 10 * time.Millisecond

// lapseLocked does without the members whose time is over.
func (s *server) lapseLocked(sub *subscription, first fact) {
	e := sub.entry
	s.c.logLocked(slog.LevelWarn, "xdslb: the time to live of members of a collection is over", first, slog.Int("members", e.collection.lapsed))
	e.collection.lapsed = 0
	s.commitLocked(sub, e.version, e.updated)
}
