// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"time"
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
		err := fmt.Errorf("xdslb: %v resource %q of xDS server %q was not renewed within its time to live of %v", t.typ, e.key.name, p.cfg.URI, ttl)
		p.core.beginLocked(e.unavailable(), "xdslb: resource TTL expired", logFields{server: p.cfg, typ: t.typ, name: e.key.name, version: version, err: err})
		sub.received, t.lapsed = false, true
		p.cache.failLocked(e, failure{state: DoesNotExist, err: err, drop: true, lapsed: true, kind: eventDeleted, from: p.cfg})
		p.notify() // the server may be pausing while no resource is missing
		sub.user.checkLocked()
	})
}
