// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// assignment is what the entry of a ClusterLoadAssignment has besides others if localities
// have their endpoints in collections (LEDS). The entry watches the collections, and its
// value is the assignment with their members in it. So whoever watches the entry need not
// know about collections.
//
//	none ──a version with collections──► waiting ──they are known──► merged ◄──┐
//	 ▲                                      ▲                          │  │     │ members
//	 └────── a version without them ────────┴── a version with others ─┘  └─────┘ change
//
// While waiting, the entry's value stays what it was, as long as it takes (T-WATCH-2), and longer
// if what is missing would leave no endpoint.
type assignment struct {
	c *Client

	latest *resource.Endpoints // as it was sent
	wanted *resource.Endpoints // the version that wants are of: latest, while e is watched
	wants  []*entry            // its collections

	// What value is made of; nil if that is not up to date, since e was not watched, or has no
	// collections.
	inUse  *resource.Endpoints
	uses   []*entry
	merger resource.Merger
	note   error // what is wrong with the value in use
	held   error // why latest is not in use, though all is known that is going to be

	settling bool
}

// latestLocked returns the latest valid version of a resource as it was sent.
func (e *entry) latestLocked() any {
	if e.assigned != nil {
		return e.assigned.latest
	}
	return e.value
}

// assignLocked makes v, which may have collections, the version that value is made of.
// It returns false if v is to be value itself.
func (c *Client) assignLocked(e *entry, v any) bool {
	latest, ok := v.(*resource.Endpoints)
	if !ok || len(latest.Collections) == 0 {
		c.unassignLocked(e)
		return false
	}
	if e.assigned == nil {
		e.assigned = &assignment{c: c}
	}
	e.assigned.latest = latest
	return true
}

// unassignLocked lets go of collections.
func (c *Client) unassignLocked(e *entry) {
	c.leaveCollectionsLocked(e)
	e.assigned = nil
}

// leaveCollectionsLocked lets go of the collections of an assignment that nobody watches. The
// value stays.
func (c *Client) leaveCollectionsLocked(e *entry) {
	a := e.assigned
	if a == nil {
		return
	}
	all := slices.Concat(a.wants, a.uses)
	a.wanted, a.wants, a.inUse, a.uses, a.held = nil, nil, nil, nil, nil
	c.unwatchCollectionsLocked(e, all, nil)
}

// watchCollectionsLocked watches the collections of the latest version.
func (c *Client) watchCollectionsLocked(e *entry) {
	a := e.assigned
	before := a.wants
	a.wanted, a.wants = a.latest, nil
	for i := range a.latest.Collections {
		w := c.entryLocked(resource.LbEndpointType, a.latest.Collections[i].Name)
		a.wants = append(a.wants, w)
		if _, ok := w.watchers[e]; !ok {
			c.watchLocked(w, e, nil)
		}
	}
	c.unwatchCollectionsLocked(e, before, slices.Concat(a.wants, a.uses))
}

// settleLocked brings the value in line with the collections, which are watched from now
// on, if the assignment is watched. It reports whether the value is another one.
func (c *Client) settleLocked(e *entry) (changed bool) {
	a := e.assigned
	if a == nil || a.settling || len(e.watchers) == 0 {
		return false
	}
	a.settling = true // watching may change collections at once
	defer func() { a.settling = false }()
	if a.wanted != a.latest {
		c.watchCollectionsLocked(e)
	}
	have := waiting
	if e.value != nil {
		have = ready
		if a.inUse != nil {
			have = readinessOfLocked(a.uses)
		}
	}
	held := a.held
	a.held = nil
	if a.inUse != a.latest && shouldReplace(have, readinessOfLocked(a.wants)) {
		if a.held = a.emptyLocked(e); a.held == nil {
			before := a.uses
			a.inUse, a.uses = a.latest, a.wants
			c.unwatchCollectionsLocked(e, before, a.wants)
		}
	}
	changed = fmt.Sprint(held) != fmt.Sprint(a.held)
	if a.inUse == nil {
		return changed
	}
	return c.mergeLocked(e) || changed
}

// emptyLocked returns why the latest version must not replace what is in use: a collection does
// not come, and there would be no endpoint left. It is what a control plane does that begins to
// use collections and cannot serve them yet. One that has an empty collection says so.
func (a *assignment) emptyLocked(e *entry) (missing error) {
	if inUse, _ := e.value.(*resource.Endpoints); inUse == nil || e.from.FailOnDataErrors || !hasEndpoints(inUse) || hasEndpoints(a.latest) {
		return nil
	}
	for _, w := range a.wants {
		switch members, _ := w.value.(*resource.Members); {
		case members != nil && members.Endpoints.Len() > 0:
			return nil
		case members == nil && missing == nil:
			missing = w.err
		}
	}
	if missing != nil {
		missing = fmt.Errorf("%w; without it there is no endpoint, and those from before stay in use", missing)
	}
	return missing
}

func hasEndpoints(e *resource.Endpoints) bool {
	return slices.ContainsFunc(e.Priorities, func(p picker.Priority) bool {
		return slices.ContainsFunc(p.Localities, func(l picker.Locality) bool { return l.Endpoints.Len() > 0 })
	})
}

// mergeLocked makes the value of what is in use.
func (c *Client) mergeLocked(e *entry) (changed bool) {
	a := e.assigned
	var note error
	members := make([]*resource.Members, len(a.uses))
	for i, u := range a.uses {
		members[i], _ = u.value.(*resource.Members)
		if u.value != nil {
			e.updated = later(e.updated, u.updated)
		}
		if note == nil && u.err != nil {
			note = u.err
		}
	}
	value, omitted := a.merger.Merge(a.inUse, members)
	if note == nil && omitted > 0 {
		note = fmt.Errorf("xds: %v resource %q: %d endpoints of collections are left out, since another one before them has their address", e.key.typ, e.key.name, omitted)
	}
	changed = e.value != any(value) || (note == nil) != (a.note == nil) || note != nil && note.Error() != a.note.Error()
	if omitted > 0 && changed {
		c.logLocked(slog.LevelWarn, "xdslb: endpoints of collections are left out, since another one before them has their address", fact{server: e.from, typ: e.key.typ, name: e.key.name},
			slog.Int("endpoints", omitted)) // no error, which would make each number another line
	}
	a.note, e.value = note, value
	return changed
}

// unwatchCollectionsLocked lets go of those in gone, but not of those in kept.
func (c *Client) unwatchCollectionsLocked(e *entry, gone, kept []*entry) {
	for _, u := range gone {
		if _, ok := u.watchers[e]; ok && !slices.Contains(kept, u) {
			c.unwatchLocked(u, e)
		}
	}
}

// onChangeLocked follows a change of a collection that e wants.
func (e *entry) onChangeLocked(*entry, *dependency) {
	if a := e.assigned; a != nil && a.c.settleLocked(e) {
		a.c.changedLocked(e)
	}
}

// collectionsLocked visits the collections of an assignment.
func (e *entry) collectionsLocked(visit func(*entry) bool) bool {
	if e.assigned == nil {
		return true
	}
	for _, w := range e.assigned.wants {
		if !visit(w) {
			return false
		}
	}
	for _, u := range e.assigned.uses {
		if !slices.Contains(e.assigned.wants, u) && !visit(u) {
			return false
		}
	}
	return true
}

// readinessOfLocked is that of several entries together.
func readinessOfLocked(entries []*entry) readiness {
	r := ready
	for _, e := range entries {
		r = min(r, e.readinessLocked())
	}
	return r
}

// noteLocked says what is wrong with the value in use, nil if nothing is.
func (e *entry) noteLocked() error {
	var note error
	if e.assigned != nil {
		note = cmp.Or(e.assigned.held, e.assigned.note)
	}
	switch {
	case note == nil:
		return e.err
	case e.err == nil:
		return note
	}
	return fmt.Errorf("%w; %w", e.err, note)
}
