// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"time"

	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/resource"
)

// Events returns the latest events of a target, oldest first, up to [eventlog.Size]. It is
// empty if the target is not watched. What is shared is in the journal of each
// target: an event about a resource in those that watch it, one about a server in
// those that have resources there. What happens again and again, as when a server
// stays away, is one event until it changes.
func (c *Client) Events(listener, authority string) []eventlog.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.managers[targetKey{listener, authority}]; m != nil {
		return m.journal.Events()
	}
	return nil
}

// newEvent returns an event of now; err may be nil.
func newEvent(kind eventlog.Kind, err error) *eventlog.Event {
	e := &eventlog.Event{Time: time.Now(), Kind: kind}
	if err != nil {
		e.Error = eventlog.Cut(err.Error())
	}
	return e
}

// journalLocked tells the targets that watch the entry about something that happened
// to it. server is the URI of whose news it is.
func (e *entry) journalLocked(kind eventlog.Kind, version, server string, err error) {
	ev := newEvent(kind, err)
	ev.Type, ev.Resource, ev.Version, ev.Server = eventType(e.key.typ), eventlog.Cut(e.key.name), eventlog.Cut(version), server
	e.tellLocked(ev, map[*dependencyManager]bool{})
}

// journalLocked tells the targets that have resources from the server about
// something that happened to the server.
func (s *server) journalLocked(kind eventlog.Kind, err error) {
	ev := newEvent(kind, err)
	ev.Server = s.cfg.URI
	told := map[*dependencyManager]bool{}
	for t := range s.types {
		for _, sub := range s.types[t].subs {
			sub.entry.tellLocked(ev, told)
		}
	}
}

// journalLocked tells the targets that have resources of the authority about
// something that happened to one of its servers.
func (a *authority) journalLocked(kind eventlog.Kind, s *server, err error) {
	ev := newEvent(kind, err)
	ev.Server = s.cfg.URI
	told := map[*dependencyManager]bool{}
	for e := range a.entries {
		e.tellLocked(ev, told)
	}
}

// tellLocked gives an event to the targets that watch the entry and have not been
// told.
func (e *entry) tellLocked(ev *eventlog.Event, told map[*dependencyManager]bool) {
	e.targetsLocked(func(m *dependencyManager) {
		if !told[m] {
			told[m] = true
			m.journal.Add(ev)
		}
	})
}

// eventType returns the type of a resource as events have it. The entries of DNS names have
// no type of resource.
func eventType(t resource.Type) string {
	if t < resource.NumTypes {
		return t.String()
	}
	return "DNS name"
}
