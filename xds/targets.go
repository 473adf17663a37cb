// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/overlay"
)

// targetKey identifies a target, and the channels with the same options and overlay.
type targetKey struct {
	listener, authority string
	view                overlaid
	options             TargetOptions
}

// overlaid identifies the overlay of a channel; the zero value is none.
type overlaid struct {
	source overlaySource
	target string // of the channel, which selects patches
}

// overlaySource is an overlay.Source.
type overlaySource interface {
	Overlay() *overlay.Overlay
	Watch(changed func()) (stop func())
}

// targets holds the dependency managers of a Client, one for each target that is watched or was
// watched less than Options.Linger ago.
type targets struct {
	core     *core
	cache    *cache
	managers map[targetKey]*dependencyManager
	patches  *patches
	shared   shared
}

// shared is used by all dependency managers of a Client.
type shared struct {
	origin *origin       // without a local cluster; see dependencyManager.originLocked
	using  []*dependency // of the cluster that is evaluated; see dependencyManager.trackLocked
}

// watch is one Watcher of a target.
type watch struct {
	watcher Watcher
	seen    uint64 // number of the outcome with which it was called last
}

// watchLocked adds a Watcher to a target.
func (ts *targets) watchLocked(key targetKey, w Watcher) (m *dependencyManager, one *watch) {
	m = ts.managers[key]
	if m == nil {
		m = newDependencyManager(ts.core, ts.cache, ts.patches, &ts.shared, key)
		ts.managers[key] = m
		m.watchOverlayLocked()
		ts.core.tasks.Go(m.run)
	}
	one = &watch{watcher: w}
	m.watches[one] = struct{}{}
	m.lingerTimer.StopLocked()
	m.notifyLocked()
	return m, one
}

// unwatchLocked removes a Watcher from its target. The last one leaves the target to linger.
func (ts *targets) unwatchLocked(m *dependencyManager, one *watch) {
	delete(m.watches, one)
	switch linger := ts.core.combined.linger; {
	case len(m.watches) > 0 || m.closed || m.lingerTimer.RunningLocked():
	case linger < 0:
		ts.closeTargetLocked(m)
	default:
		ts.core.startLocked(&m.lingerTimer, linger, func() { ts.closeTargetLocked(m) })
	}
}

// closeTargetLocked ends a dependency manager.
func (ts *targets) closeTargetLocked(m *dependencyManager) {
	delete(ts.managers, m.key)
	m.closeLocked()
	if m.key.view.source != nil {
		if ts.core.overlaid--; ts.core.overlaid == 0 {
			ts.cache.discardBytesLocked()
		}
	}
}

// closeLocked ends all dependency managers.
func (ts *targets) closeLocked() {
	for _, m := range ts.managers {
		ts.closeTargetLocked(m)
	}
}

// settledLocked returns the outcome of a target that is watched; nothing while another outcome may
// follow. If an evaluation is due, evaluated is closed after it.
func (ts *targets) settledLocked(key targetKey) (cfg *picker.Config, evaluated chan struct{}, err error) {
	m := ts.managers[key]
	switch {
	case m == nil: // the client is closed
		return nil, nil, errClosed
	case m.delivered != nil:
		return nil, m.delivered, nil
	case m.err != nil:
		return nil, nil, m.err
	}
	for e := range m.depsLocked() {
		if e.unansweredLocked() {
			return nil, nil, nil
		}
	}
	return m.config, nil, nil
}
