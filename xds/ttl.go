// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/xdslb/xdslb/xds/internal/timing"
)

// liveLocked starts the time to live of a resource that came just now; 0 is for ever.
func (s *server) liveLocked(sub *subscription, ttl time.Duration) {
	e := sub.entry
	if ttl == 0 {
		e.ttlTimer.StopLocked()
		return
	}
	s.liveForLocked(&e.ttlTimer, ttl, fact{server: s.cfg, typ: e.key.typ, name: e.key.name, version: e.version}, func(err error) {
		sub.received, s.types[e.key.typ].lapsed = false, true
		s.c.failLocked(e, failure{state: DoesNotExist, err: err, drop: true, kind: Deleted, from: s.cfg})
	})
}

// liveMemberLocked starts the time to live of a member that came just now; 0 is for ever.
func (s *server) liveMemberLocked(sub *subscription, name string, m *member, ttl time.Duration) {
	if ttl == 0 {
		m.ttl.StopLocked()
		return
	}
	e := sub.entry
	s.liveForLocked(&m.ttl, ttl, fact{server: s.cfg, typ: e.key.typ, name: name, version: m.version}, func(error) {
		e.collection.removeLocked(name)
		s.commitLocked(sub, e.version, e.updated)
	})
}

// liveForLocked starts the time to live of a resource that came just now, and that about
// says which it is. When it is over without another one, that is logged, and over called.
func (s *server) liveForLocked(timer *timing.Timer, ttl time.Duration, about fact, over func(error)) {
	s.startLocked(timer, ttl, func() {
		late := about
		late.err = fmt.Errorf("xds: %v resource %q of xDS server %q was not renewed within its time to live of %v", late.typ, late.name, s.cfg.URI, ttl)
		s.c.logLocked(slog.LevelWarn, "xdslb: the time to live of a resource is over", late)
		over(late.err)
	})
}
