// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/resource"
)

// cache holds the resources of a Client. It subscribes to an entry at the source of the entry
// while the entry has watchers, and notifies the watchers when the entry changes.
type cache struct {
	core    *core
	entries map[entryKey]*entry
	// sourceOf returns the source of a key, or the reason why the key has no source.
	sourceOf func(entryKey) (source, error)
}

// isFullState reports whether a state-of-the-world response of type t has all resources
// that were requested, so that it implies which ones do not exist (T-XDS-6). Resources
// of other types are never deleted.
func isFullState(t resource.Type) bool {
	return t == resource.ListenerType || t == resource.ClusterType
}

// source provides the versions of entries: an authority, or DNS.
type source interface {
	// subscribeLocked subscribes to an entry, if it is not subscribed to.
	subscribeLocked(e *entry)
	// unsubscribeLocked is called when the last watcher of an entry has gone. The entry is kept while
	// entry.subs is not 0.
	unsubscribeLocked(e *entry)
	// forgetLocked is called when an entry leaves the cache.
	forgetLocked(e *entry)
	// waitingLocked describes what an entry without a version waits for.
	waitingLocked(e *entry) error
	// resendLocked makes the servers send an entry's resource again, although it has not changed.
	resendLocked(e *entry)
}

// watcher is notified of changes of an entry: a dependencyManager, or the source of a variant of the
// entry (see patched).
type watcher interface {
	// onChangeLocked is called when e has changed. data is the argument of watchLocked.
	onChangeLocked(e *entry, data any)
	// targetsLocked visits the targets that depend on the watcher, possibly more than once.
	targetsLocked(visit func(target))
}

// target is a target whose configuration depends on entries.
type target interface {
	// recordLocked adds an event to the journal of the target.
	recordLocked(*eventlog.Event)
	// pendingLocked returns a channel that is closed when the changes so far have been evaluated and
	// delivered; nil if they have been.
	pendingLocked() chan struct{}
}

// acceptLocked makes v the latest version of a resource, and reports whether the entry changed.
func (c *cache) acceptLocked(e *entry, v acceptedVersion) (changed bool) {
	same := e.value == v.value && e.err == nil && e.from == v.from
	if same && e.state == Acked && v.raw == nil {
		e.version, e.sum = v.version, v.sum // most resources of a response in state of the world
		return false
	}
	if e.state != Acked && e.state != Requested {
		c.core.endLocked(e.unavailable(), "xdslb: resource recovered", logFields{server: v.from, typ: e.key.typ, name: e.key.name, version: v.version})
	}
	if e.value != v.value {
		e.value, e.updated = v.value, v.at
	}
	late := v.raw != nil && e.raw == nil
	if v.raw != nil {
		e.raw = v.raw
	}
	e.enterLocked(Acked)
	e.err, e.erred, e.transient = nil, time.Time{}, false
	e.from, e.sum, e.version = v.from, v.sum, v.version
	if same {
		for _, variant := range e.variants {
			if late {
				variant.patchedLocked().followLocked()
			}
		}
		return false
	}
	e.recordLocked(eventAccepted, v.version, v.from, nil)
	c.changedLocked(e)
	return true
}

// failure describes why the latest version of a resource is not available.
type failure struct {
	state State
	err   error
	// transient means that err concerns the connection, not the resource; drop that the version in
	// use must not be used any more (A88), except, with keep, by targets without DropDeleted; lapsed
	// that its time to live has expired.
	transient, drop, keep, lapsed bool

	// For the journal.
	kind    eventlog.Kind
	version string
	from    *bootstrap.Server // nil if no server reported it
}

// failLocked records that the latest version of a resource is not available, and reports whether
// the entry changed. The version in use stays in use unless f.drop is set (A88).
func (c *cache) failLocked(e *entry, f failure) (changed bool) {
	dropped := f.drop && e.value != nil
	if dropped {
		c.resetLocked(e)
	}
	if kept := e.keptLocked(); kept != nil && f.drop && !f.keep {
		kept.value, dropped = nil, true
	}
	changed = dropped || e.err == nil || e.err.Error() != f.err.Error() || e.transient != f.transient
	e.enterLocked(f.state)
	e.err, e.erred, e.transient, e.lapsed = f.err, time.Now(), f.transient, f.lapsed
	if changed {
		e.recordLocked(f.kind, f.version, f.from, f.err)
		c.changedLocked(e)
	}
	return changed
}

// resetLocked removes all versions of a resource.
func (c *cache) resetLocked(e *entry) {
	e.enterLocked(Requested)
	e.ttlTimer.StopLocked()
	e.value, e.err, e.erred, e.transient = nil, nil, time.Time{}, false
	e.from, e.version, e.sum, e.raw = nil, "", xxh3.Uint128{}, nil
}

// rejectLocked records that the latest version of a resource is invalid (A46), and reports whether
// the entry changed.
func (c *cache) rejectLocked(e *entry, err error, v rejectedVersion) (changed bool) {
	changed = c.failLocked(e, failure{state: Nacked, err: err, drop: v.from.FailOnDataErrors, kind: eventRejected, version: v.version, from: v.from})
	e.rejected = &v
	return changed
}

// unreachableLocked records that no server can be reached for a resource that has not been
// received. The state stays Requested.
func (c *cache) unreachableLocked(e *entry, err error) {
	e.erred = time.Now()
	if e.err == nil || e.err.Error() != err.Error() {
		e.err, e.transient = err, true
		c.changedLocked(e)
	}
}

// changedLocked notifies the watchers of e.
func (c *cache) changedLocked(e *entry) {
	for w, data := range e.watchers {
		w.onChangeLocked(e, data)
	}
}

// entryLocked returns the entry of a resource. A new entry leaves the cache with its last watcher.
func (c *cache) entryLocked(typ resource.Type, name string) *entry {
	if typ != dnsType {
		name = resource.CanonicalName(name)
	}
	key := entryKey{typ, name}
	e := c.entries[key]
	if e == nil {
		e = &entry{key: key, watchers: map[watcher]any{}}
		c.entries[key] = e
	}
	return e
}

// maxName bounds the name of a resource, in bytes. Names are in errors of RPCs.
const maxName = 4 << 10

// checkName returns why a name cannot be requested. A request with text that is not UTF-8 would
// end the stream. The name "*" stands for all resources of a type, and xdstp://authority/type/* for all of
// a collection (xRFC TP1).
func checkName(name string) error {
	if n := len(name); n > maxName {
		return fmt.Errorf("xdslb: a name of %d bytes, want %d at most: %q", n, maxName, eventlog.Cut(name))
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("xdslb: resource name %q is not valid UTF-8", name)
	}
	if path, _, _ := strings.Cut(name, "?"); name == "*" || authorityOf(name).xdstp && strings.HasSuffix(path, "/*") {
		return fmt.Errorf("xdslb: resource name %q stands for all resources, want the name of one", name)
	}
	return nil
}

// watchLocked adds a watcher of e. data is passed to the onChangeLocked method of w.
func (c *cache) watchLocked(e *entry, w watcher, data any) {
	if !e.watchedLocked() {
		if e.value == nil {
			c.resetLocked(e) // an earlier error is outdated
		}
		e.since = time.Now()
	}
	e.watchers[w] = data
	if e.source == nil {
		err := checkName(e.key.name)
		if err == nil {
			e.source, err = c.sourceOf(e.key)
		}
		if err != nil {
			c.failLocked(e, failure{state: Unknown, err: err, kind: eventMissing})
			return
		}
	}
	e.source.subscribeLocked(e)
}

// unwatchLocked removes a watcher, and with the last one the subscription.
func (c *cache) unwatchLocked(e *entry, w watcher) {
	delete(e.watchers, w)
	if e.watchedLocked() {
		return
	}
	if e.source != nil {
		e.source.unsubscribeLocked(e)
	}
	c.forgetLocked(e)
}

// forgetLocked removes an entry that has neither watchers nor subscriptions.
func (c *cache) forgetLocked(e *entry) {
	if e.watchedLocked() || e.subs > 0 {
		return
	}
	e.ttlTimer.StopLocked()
	c.core.endLocked(e.unavailable(), "xdslb: resource no longer used", logFields{typ: e.key.typ, name: e.key.name})
	c.core.log.EndState(e.unavailable())
	if c.entries[e.key] == e {
		delete(c.entries, e.key)
	}
	if e.source != nil {
		e.source.forgetLocked(e)
	}
}

// closeLocked stops the timers of all entries.
func (c *cache) closeLocked() {
	for _, e := range c.entries {
		e.ttlTimer.StopLocked()
	}
}
