// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"strings"
	"time"

	"github.com/xdslb/xdslb/xds/resource"
)

// EventKind says what an Event is about.
type EventKind uint8

// The kinds of events.
const (
	ConfigurationDelivered EventKind = iota // Watchers have been given a configuration
	TargetFailed                            // Watchers have been given an error instead
	Accepted                                // a resource, or the addresses of a DNS name, changed
	Rejected                                // a version of a resource is invalid
	Deleted                                 // a server deleted a resource
	Missing                                 // a server did not send a resource in time
	ErrorReceived                           // a server sent an error in the place of a resource, or DNS failed
	Connected                               // a stream had its first response
	StreamFailed                            // a stream ended, or could not be opened
	Fallback                                // Server could not be reached, and the next one of its chain is asked
	Return                                  // Server is back, and those after it in the chain are left
)

// String returns the name of the kind.
func (k EventKind) String() string {
	names := [...]string{"ConfigurationDelivered", "TargetFailed", "Accepted", "Rejected", "Deleted", "Missing",
		"ErrorReceived", "Connected", "StreamFailed", "Fallback", "Return"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is something that happened to a target, to a resource that it watches, or to
// a server that it has resources from. Fields that say nothing are empty, long texts are
// cut.
type Event struct {
	Time time.Time
	Kind EventKind
	// Type and Name are those of a resource. Type is resource.NumTypes if the event
	// is about none; a Name is then that of a DNS name.
	Type    resource.Type
	Name    string
	Version string // of the resource
	Server  string // URI
	Err     string // what is wrong
}

// String returns the event on one line, such as
//
//	15:04:05.000 Rejected Cluster resource "c" version "7" server "cp:443": lrs_server must be self
func (e Event) String() string {
	var b strings.Builder
	b.WriteString(e.Time.Format("15:04:05.000 "))
	b.WriteString(e.Kind.String())
	switch {
	case e.Type < resource.NumTypes:
		fmt.Fprintf(&b, " %v resource %q", e.Type, e.Name)
	case e.Name != "":
		fmt.Fprintf(&b, " DNS name %q", e.Name)
	}
	if e.Version != "" {
		fmt.Fprintf(&b, " version %q", e.Version)
	}
	if e.Server != "" {
		fmt.Fprintf(&b, " server %q", e.Server)
	}
	if e.Err != "" {
		fmt.Fprintf(&b, ": %s", e.Err)
	}
	return b.String()
}

// Events returns the last events of a target, oldest first: no more than 64. It is
// empty if the target is not watched. What is shared is in the journal of each
// target: an event about a resource in those that watch it, one about a server in
// those that have resources there. What happens again and again, as when a server
// stays away, is one event until it changes.
func (c *Client) Events(listener, authority string) []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.managers[targetKey{listener, authority}]; m != nil {
		return m.journal.list()
	}
	return nil
}

// journalSize is how many events a journal has.
const journalSize = 64

// maxText is how long a text of an event or of the log may be that a server can choose,
// in bytes.
const maxText = 1 << 10

// cut returns a text that is no longer than maxText, but for a sign that there was more.
// It does not keep the longer one in memory.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// journal is the last events of a target. It has no memory until the first; targets
// share events that are about the same. The zero value is ready. Guarded by Client.mu.
type journal struct {
	events []*Event // immutable; a ring once there are journalSize
	oldest int      // in the ring
}

func (j *journal) add(e *Event) {
	if len(j.events) < journalSize {
		j.events = append(j.events, e)
		return
	}
	j.events[j.oldest] = e
	j.oldest = (j.oldest + 1) % journalSize
}

// list returns copies, oldest first.
func (j *journal) list() []Event {
	all := make([]Event, len(j.events))
	for i := range all {
		all[i] = *j.events[(j.oldest+i)%len(j.events)]
	}
	return all
}

// newEvent returns an event of now; err may be nil.
func newEvent(kind EventKind, err error) *Event {
	e := &Event{Time: time.Now(), Kind: kind, Type: resource.NumTypes}
	if err != nil {
		e.Err = cut(err.Error())
	}
	return e
}

// journalLocked tells the targets that watch the entry about something that happened
// to it. server is the URI of whose news it is.
func (e *entry) journalLocked(kind EventKind, version, server string, err error) {
	ev := newEvent(kind, err)
	ev.Type, ev.Name, ev.Version, ev.Server = e.key.typ, cut(e.key.name), cut(version), server
	e.tellLocked(ev, map[*dependencyManager]bool{})
}

// journalLocked tells the targets that have resources from the server about
// something that happened to the server.
func (s *server) journalLocked(kind EventKind, err error) {
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
func (a *authority) journalLocked(kind EventKind, s *server, err error) {
	ev := newEvent(kind, err)
	ev.Server = s.cfg.URI
	told := map[*dependencyManager]bool{}
	for e := range a.entries {
		e.tellLocked(ev, told)
	}
}

// tellLocked gives an event to the targets that watch the entry and have not been
// told.
func (e *entry) tellLocked(ev *Event, told map[*dependencyManager]bool) {
	e.targetsLocked(func(m *dependencyManager) {
		if !told[m] {
			told[m] = true
			m.journal.add(ev)
		}
	})
}
