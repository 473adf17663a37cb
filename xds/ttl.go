// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/xdslb/xdslb/xds/eventlog"
)

// liveLocked starts the time to live of a resource that was received just now; 0 is unlimited.
func (t *subscriptions) liveLocked(sub *subscription, ttl time.Duration) {
	e, p := sub.entry, t.peer
	if ttl == 0 {
		e.ttlTimer.StopLocked()
		return
	}
	version := e.version
	p.core.startLocked(&e.ttlTimer, ttl, func() {
		expired := t.expired(e.key.name, version, ttl)
		p.core.beginLocked(e.unavailable(), "xdslb: resource TTL expired", expired)
		sub.received, t.lapsed = false, true
		p.cache.failLocked(e, failure{state: DoesNotExist, err: expired.err, drop: true, lapsed: true, kind: eventlog.Deleted, from: p.cfg})
		p.notify() // the server may be pausing while no resource is missing
		sub.user.checkLocked()
	})
}

// expired returns the log fields of a resource that was not renewed in time.
func (t *subscriptions) expired(name, version string, ttl time.Duration) logFields {
	err := fmt.Errorf("xdslb: %v resource %q of xDS server %q was not renewed within its time to live of %v", t.typ, name, t.peer.cfg.URI, ttl)
	return logFields{server: t.peer.cfg, typ: t.typ, name: name, version: version, err: err}
}

// liveMemberLocked starts the time to live of a member that was received just now; 0 is unlimited.
func (t *subscriptions) liveMemberLocked(sub *subscription, name string, m *member, ttl time.Duration) {
	if ttl == 0 {
		m.ttl.StopLocked()
		return
	}
	col, core := sub.entry.collection, t.peer.core
	core.startLocked(&m.ttl, ttl, func() {
		if col.lapsed == 0 {
			first := t.expired(name, m.version, ttl)
			core.startLocked(&col.lapse, lapsePause, func() { t.lapseLocked(sub, first) })
		}
		col.lapsed++
		col.removeLocked(name)
	})
}

// lapsePause is how long an expired member waits for further expired members: each change of a
// collection takes O(members), and members that were received together expire together.
const lapsePause = 10 * time.Millisecond

// lapseLocked commits a collection without the members that have expired.
func (t *subscriptions) lapseLocked(sub *subscription, first logFields) {
	e := sub.entry
	t.peer.core.logLocked(slog.LevelWarn, "xdslb: TTL of collection members expired", first, slog.Int("members", e.collection.lapsed))
	e.collection.lapsed = 0
	t.commitLocked(sub, e.version, e.updated)
}
