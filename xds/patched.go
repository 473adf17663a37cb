// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/overlay"
	"github.com/xdslb/xdslb/xds/resource"
)

// This file has the variants of entries. A resource is decoded, validated, acknowledged and cached as
// it was received, and dropped when it is deleted. Targets without TargetOptions.DropDeleted, and
// those whose overlay has patches for the resource, use a variant of the entry, which targets with
// equal options and patches share:
//
//	server ──► entry ◄── watches ── patched ──► variant ◄── watches ── target with patches
//	           ▲   ▲
//	           │   └── watches ── target with DropDeleted
//	           │
//	           └── watches ── patched ──► variant that keeps the last version of a deleted resource
//	                                      ▲     ▲
//	                                      │     └── watches ── target
//	                                      └── watches ── patched ──► variant ◄── watches ── target with patches
//
// Patches are applied without core.mu, by one goroutine, in batches. Until then the previous value
// stays in use, as while a resource is fetched. So changes of several resources by a new overlay
// take effect together.

// patches makes the values of patched entries.
type patches struct {
	core    *core
	cache   *cache
	due     []*patched
	running bool // there is a goroutine for due
}

// variantKey identifies a variant of an entry: by its patches, or as the one that keeps the last version
// of a deleted resource.
type variantKey struct {
	patches overlay.Key
	keep    bool
}

var keepKey = variantKey{keep: true}

// patched is the source of a variant of an entry.
type patched struct {
	all         *patches
	base, entry *entry
	key         variantKey
	selection   *overlay.Selection
	due         bool
	noBytes     error // why the bytes of base, without which there is no value, are not available

	made     any            // value of base that the value of entry was made of; nil without a value
	result   overlay.Result // of made
	received []byte         // bytes of base that result was made of; only of endpoints
}

// patchedLocked returns the source of a variant; nil for other entries.
func (e *entry) patchedLocked() *patched {
	p, _ := e.source.(*patched)
	return p
}

// entryLocked returns the entry that targets with a selection of patches use in place of e: e itself
// if there are no patches for it. With keep the last version of a deleted resource stays in use.
func (ps *patches) entryLocked(e *entry, selection *overlay.Selection, keep bool) *entry {
	if keep && isFullState(e.key.typ) {
		e = ps.variantLocked(e, keepKey, nil)
	}
	if key := selection.Key(e.key.typ, e.key.name); key != (overlay.Key{}) {
		e = ps.variantLocked(e, variantKey{patches: key}, selection)
	}
	return e
}

// variantLocked returns a variant of an entry.
func (ps *patches) variantLocked(base *entry, key variantKey, selection *overlay.Selection) *entry {
	if e := base.variants[key]; e != nil {
		return e
	}
	p := &patched{all: ps, base: base, key: key, selection: selection}
	p.entry = &entry{key: base.key, source: p, watchers: map[watcher]any{}}
	if base.variants == nil {
		base.variants = map[variantKey]*entry{}
	}
	base.variants[key] = p.entry
	return p.entry
}

// subscribeLocked implements source.
func (p *patched) subscribeLocked(*entry) {
	p.all.cache.watchLocked(p.base, p, nil)
	p.followLocked()
	if p.base.wantsBytesLocked() {
		p.base.source.resendLocked(p.base)
	}
}

// unsubscribeLocked implements source.
func (p *patched) unsubscribeLocked(*entry) { p.all.cache.unwatchLocked(p.base, p) }

// forgetLocked implements source.
func (p *patched) forgetLocked(*entry) { delete(p.base.variants, p.key) }

// waitingLocked implements source.
func (p *patched) waitingLocked(*entry) error { return p.base.waitingLocked() }

// resendLocked implements source.
func (p *patched) resendLocked(*entry) { p.base.source.resendLocked(p.base) }

// onChangeLocked implements watcher.
func (p *patched) onChangeLocked(*entry, any) {
	p.followLocked()
	p.all.cache.changedLocked(p.entry)
}

// targetsLocked implements watcher.
func (p *patched) targetsLocked(visit func(target)) { p.entry.targetsLocked(visit) }

// wantsBytesLocked reports whether patches wait for the bytes of the version in the cache, which was
// received when the client had no overlay.
func (e *entry) wantsBytesLocked() bool {
	return e.raw == nil && e.value != nil && e.state != DoesNotExist && len(e.patchedVariantsLocked()) > 0
}

// bytesUnreachableLocked records that no server can be reached for the bytes that patches wait for.
// Targets with a configuration keep it, and the others fail.
func (e *entry) bytesUnreachableLocked(err error) {
	for _, p := range e.patchedVariantsLocked() {
		if p.entry.value == nil && (p.noBytes == nil || p.noBytes.Error() != err.Error()) {
			p.noBytes = err
			p.all.cache.changedLocked(p.entry)
		}
	}
}

// patchedVariantsLocked returns the variants of a resource with patches, in a constant order.
func (e *entry) patchedVariantsLocked() (all []*patched) {
	for key, variant := range e.variants {
		if key == keepKey {
			all = append(all, variant.patchedVariantsLocked()...)
		} else {
			all = append(all, variant.patchedLocked())
		}
	}
	slices.SortFunc(all, func(p, q *patched) int {
		return cmp.Or(cmp.Compare(p.key.patches.Hi, q.key.patches.Hi), cmp.Compare(p.key.patches.Lo, q.key.patches.Lo))
	})
	return all
}

// keptLocked returns the variant that has the last version of the resource, which was deleted; nil if
// there is none.
func (e *entry) keptLocked() *entry {
	if kept := e.variants[keepKey]; kept != nil && kept.value != nil && e.value == nil {
		return kept
	}
	return nil
}

// noteLocked returns the error about the value in use, or nil.
func (e *entry) noteLocked() error {
	if p := e.patchedLocked(); p != nil {
		return p.base.noteLocked()
	}
	return e.err
}

// followLocked updates the entry as far as that requires no decoding, and makes the rest due.
func (p *patched) followLocked() {
	base, e := p.base, p.entry
	if p.key == keepKey {
		p.keepLocked()
		return
	}
	e.from = base.from
	if base.value == nil || base.raw != nil {
		p.noBytes = nil
	}
	switch {
	case base.value == nil, base.raw == nil && base.state == DoesNotExist: // the server does not send it again
		p.made, p.result, p.received, e.value = nil, overlay.Result{}, nil, nil
	case base.raw == nil && (base.err == nil || e.value != nil):
		return // see bytesUnreachableLocked
	case base.raw == nil: // a server answers, but sends no valid version, as if it never had
		p.noBytes = nil
	case base.value == p.made:
	case p.made != nil && base.key.typ == resource.EndpointsType && bytes.Equal(overlay.WithoutEndpoints(base.raw), p.received):
		p.made, e.value = base.value, p.valueOf(base.value)
	default:
		p.dueLocked()
		return
	}
	p.stateLocked()
}

// stateLocked copies the state.
func (p *patched) stateLocked() {
	base, e := p.base, p.entry
	e.state, e.entered, e.err, e.erred = base.state, base.entered, base.err, base.erred
	e.transient, e.updated = base.transient, base.updated
}

// keepLocked is followLocked for the variant that keeps the last version of a deleted resource.
func (p *patched) keepLocked() {
	if base, e := p.base, p.entry; base.value != nil {
		e.value, e.from, e.version, e.raw = base.value, base.from, base.version, base.raw
	}
	p.stateLocked()
	for _, variant := range p.entry.variants {
		variant.patchedLocked().followLocked()
	}
}

// valueOf returns the value for a value of base, with the same result of the patches.
func (p *patched) valueOf(base any) any {
	of, ok := base.(*resource.Endpoints)
	switch {
	case p.result.Value == nil:
		return base
	case ok: // patches change the policy only
		merged := *of
		merged.Drops = p.result.Value.(*resource.Endpoints).Drops
		return &merged
	}
	return p.result.Value
}

// dueLocked makes the application of the patches due.
func (p *patched) dueLocked() {
	ps := p.all
	if p.due || ps.core.ctx.Err() != nil {
		return
	}
	p.due = true
	ps.due = append(ps.due, p)
	if !ps.running {
		ps.running = true
		ps.core.tasks.Go(ps.run)
	}
}

// application is the application of patches to a version of a resource.
type application struct {
	p       *patched
	of      any
	raw     []byte
	options resource.Options
	result  overlay.Result
}

// run applies patches until none are due. After a batch it pauses for as long as the batch took, so
// that a server that sends continuously gets half a processor.
func (ps *patches) run() {
	for {
		batch := ps.take()
		if batch == nil {
			return
		}
		begin := time.Now()
		for i := range batch {
			batch[i].apply()
		}
		ps.put(batch)
		select {
		case <-ps.core.ctx.Done():
		case <-timing.After(min(time.Since(begin), maxPatchPause)):
		}
	}
}

const maxPatchPause = time.Second

// take returns what is due; nil ends the goroutine.
func (ps *patches) take() (batch []application) {
	ps.core.mu.Lock()
	defer ps.core.mu.Unlock()
	for _, p := range ps.due {
		p.due = false
		if base := p.base; p.entry.watchedLocked() && base.value != nil && base.raw != nil {
			a := application{p: p, of: base.value, raw: base.raw, options: ps.core.decodeOptions(base.from)}
			a.options.Stopped = func() bool { return ps.core.ctx.Err() != nil }
			batch = append(batch, a)
		}
	}
	ps.due = nil
	ps.running = batch != nil && ps.core.ctx.Err() == nil
	if !ps.running {
		return nil
	}
	return batch
}

// apply applies the patches. Of endpoints only the policy is decoded.
func (a *application) apply() {
	key := a.p.base.key
	if key.typ == resource.EndpointsType {
		a.raw = overlay.WithoutEndpoints(a.raw)
	}
	_, err := recoverPanic(key.typ, func() (any, error) {
		a.result = a.p.selection.Apply(key.typ, key.name, a.raw, func(value []byte) (any, error) {
			return resource.Decode(key.typ, value, a.options)
		})
		return nil, nil
	})
	if err != nil {
		a.result = overlay.Result{Outcomes: []overlay.Outcome{{Err: err}}}
	}
}

// put makes the results of a batch the values, unless they are outdated: then another application is
// due.
func (ps *patches) put(batch []application) {
	ps.core.mu.Lock()
	defer ps.core.unlock()
	if ps.core.ctx.Err() != nil {
		return // the results may be incomplete
	}
	for i := range batch {
		a := &batch[i]
		p := a.p
		if !p.entry.watchedLocked() || p.base.value != a.of || p.base.raw == nil {
			continue
		}
		before := p.result.Outcomes
		p.made, p.result = a.of, a.result
		if p.base.key.typ == resource.EndpointsType {
			p.received = a.raw
		}
		p.entry.value = p.valueOf(a.of)
		p.followLocked()
		p.logLocked(before)
		ps.cache.changedLocked(p.entry)
	}
}

// logLocked logs the patches that were skipped, unless the previous version had the same outcome.
func (p *patched) logLocked(before []overlay.Outcome) {
	for _, o := range p.result.Outcomes {
		if o.Err == nil || slices.ContainsFunc(before, func(old overlay.Outcome) bool {
			return old.Patch == o.Patch && old.Err != nil && old.Err.Error() == o.Err.Error()
		}) {
			continue
		}
		p.all.core.logLocked(slog.LevelWarn, "xdslb: skipping a patch of the overlay for a resource", logFields{server: p.base.from, typ: p.base.key.typ, name: p.base.key.name,
			version: p.base.version, err: fmt.Errorf("%v: %w", o.Patch, o.Err)})
	}
}

// patchedForm is a form of a resource with the patches of an overlay.
type patchedForm struct {
	// Outcomes has an element for each patch that applies to the resource.
	Outcomes []overlay.Outcome
	// Raw is the patched resource; nil without KeepBytes, and if no patch changes it.
	Raw *anypb.Any
}

// statusLocked returns the form of the resource; not ok before the first one.
func (p *patched) statusLocked() (s patchedForm, ok bool) {
	if p.made == nil {
		return s, false
	}
	s.Outcomes = p.result.Outcomes
	if value := p.result.Bytes; value != nil && p.all.core.bytes {
		if p.base.key.typ == resource.EndpointsType {
			value = overlay.WithPolicy(p.base.raw, value)
		}
		s.Raw = &anypb.Any{TypeUrl: p.base.key.typ.URL(), Value: value}
	}
	return s, true
}

// keepsLocked reports whether the bytes of resources are kept: all of them with KeepBytes, and those
// that patches apply to while a target has an overlay.
func (c *core) keepsLocked() bool { return c.bytes || c.overlaid > 0 }

// keep returns a copy of the bytes of a resource that are kept, since these may be part of a buffer.
func (c *core) keep(t resource.Type, value []byte) []byte {
	if t == resource.EndpointsType && !c.bytes {
		return overlay.WithoutEndpoints(value)
	}
	return bytes.Clone(value)
}

// discardBytesLocked discards the bytes that were kept for overlays.
func (c *cache) discardBytesLocked() {
	if c.core.bytes {
		return
	}
	for _, e := range c.entries {
		e.raw = nil
		if kept := e.variants[keepKey]; kept != nil {
			kept.raw = nil
		}
	}
}
