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

// assignment extends the entry of a ClusterLoadAssignment whose localities have their endpoints in
// collections (LEDS). The entry watches the collections, and its value is the assignment merged
// with their members, so the watchers of the entry need not handle collections.
//
//	none ──a version with collections──► waiting ──all known──► merged ◄──┐
//	 ▲                                      ▲                     │  │    │ members
//	 └────── a version without them ────────┴─ a version with ────┘  └────┘ change
//	                                           other collections
//
// While waiting, the entry keeps its value (T-WATCH-2), and also later if a missing collection
// would leave no endpoint.
type assignment struct {
	c *cache

	latest *resource.Endpoints // as it was received
	wanted *resource.Endpoints // the version that wants belong to: latest, while the entry is watched
	wants  []*entry            // its collections

	// The assignment and the collections that the value was merged from; nil if the value is outdated,
	// because the entry was not watched, or if there are no collections.
	inUse  *resource.Endpoints
	uses   []*entry
	merger resource.Merger
	note   error // error about the value in use
	held   error // why latest is not in use although its collections are known

	settling bool
}

// latestLocked returns the latest valid version of a resource as it was received.
func (e *entry) latestLocked() any {
	if e.assigned != nil {
		return e.assigned.latest
	}
	return e.value
}

// assignLocked makes v the version that the value is merged from. It returns false if v has no
// collections, and is the value itself.
func (c *cache) assignLocked(e *entry, v any) bool {
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

// unassignLocked releases the collections of an entry.
func (c *cache) unassignLocked(e *entry) {
	c.leaveCollectionsLocked(e)
	e.assigned = nil
}

// leaveCollectionsLocked releases the collections of an assignment that is not watched. The value
// stays.
func (c *cache) leaveCollectionsLocked(e *entry) {
	a := e.assigned
	if a == nil {
		return
	}
	all := slices.Concat(a.wants, a.uses)
	a.wanted, a.wants, a.inUse, a.uses, a.held = nil, nil, nil, nil, nil
	c.unwatchCollectionsLocked(e, all, nil)
}

// watchCollectionsLocked watches the collections of the latest version.
func (c *cache) watchCollectionsLocked(e *entry) {
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

// settleLocked watches the collections of an assignment that is watched, updates its value, and
// reports whether the value or its note changed.
func (c *cache) settleLocked(e *entry) (changed bool) {
	a := e.assigned
	if a == nil || a.settling || !e.watchedLocked() {
		return false
	}
	a.settling = true // watchLocked may change collections at once
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

// emptyLocked returns why the latest version must not replace the version in use: a collection is
// missing, and no endpoint would be left. A control plane that starts to use collections and cannot
// serve them yet does this. A collection that is known to be empty is no reason.
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
		missing = fmt.Errorf("%w; the previous endpoints stay in use, since there would be none without it", missing)
	}
	return missing
}

func hasEndpoints(e *resource.Endpoints) bool {
	return slices.ContainsFunc(e.Priorities, func(p picker.Priority) bool {
		return slices.ContainsFunc(p.Localities, func(l picker.Locality) bool { return l.Endpoints.Len() > 0 })
	})
}

// mergeLocked merges the version in use with the members of its collections.
func (c *cache) mergeLocked(e *entry) (changed bool) {
	a := e.assigned
	var note error
	members := make([]*resource.Members, len(a.uses))
	for i, u := range a.uses {
		members[i], _ = u.value.(*resource.Members)
		if u.value != nil {
			e.updated = latest(e.updated, u.updated)
		}
		if note == nil && u.err != nil {
			note = u.err
		}
	}
	value, omitted := a.merger.Merge(a.inUse, members)
	if note == nil && omitted > 0 {
		note = fmt.Errorf("xdslb: %v resource %q: %d endpoints of collections ignored, since an earlier one has the same address", e.key.typ, e.key.name, omitted)
	}
	changed = e.value != any(value) || (note == nil) != (a.note == nil) || note != nil && note.Error() != a.note.Error()
	if omitted > 0 && changed {
		// The number is not part of an error, so that lines with other numbers are repeats.
		c.core.logLocked(slog.LevelWarn, "xdslb: duplicate endpoints of collections ignored", logFields{server: e.from, typ: e.key.typ, name: e.key.name},
			slog.Int("endpoints", omitted))
	}
	a.note, e.value = note, value
	return changed
}

// unwatchCollectionsLocked stops watching the collections in gone that are not in kept.
func (c *cache) unwatchCollectionsLocked(e *entry, gone, kept []*entry) {
	for _, u := range gone {
		if _, ok := u.watchers[e]; ok && !slices.Contains(kept, u) {
			c.unwatchLocked(u, e)
		}
	}
}

// onChangeLocked implements watcher: a collection of the assignment has changed.
func (e *entry) onChangeLocked(*entry, any) {
	if a := e.assigned; a != nil && a.c.settleLocked(e) {
		a.c.changedLocked(e)
	}
}

// collectionsLocked visits the collections of an assignment.
func (e *entry) collectionsLocked(visit func(*entry) bool) bool {
	if p := e.patchedLocked(); p != nil {
		e = p.base
	}
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

// readinessOfLocked returns the lowest readiness of several entries.
func readinessOfLocked(entries []*entry) readiness {
	r := ready
	for _, e := range entries {
		r = min(r, e.readinessLocked())
	}
	return r
}

// noteLocked returns the error about the value in use, or nil.
func (e *entry) noteLocked() error {
	if p := e.patchedLocked(); p != nil {
		return p.base.noteLocked()
	}
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
