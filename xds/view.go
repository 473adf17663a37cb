// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"iter"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/overlay"
)

// View is a Client as the channels with an overlay and TargetOptions use it: with the patches that the
// overlay has for the target of the channel. It shares everything else with other Views of the
// Client: streams, resources as they were received, and resources with equal patches. It is
// comparable.
type View struct {
	client *Client
	overlaid
	options TargetOptions
}

// View returns the View of the channels with an overlay, and with a target such as "xds:///orders".
// Without an overlay, which is a nil source, all channels have the same View. The TargetOptions are
// the zero value.
func (c *Client) View(source *overlay.Source, target string) View {
	if source == nil {
		return View{client: c}
	}
	return View{client: c, overlaid: overlaid{source, target}}
}

// With returns the View with other TargetOptions.
func (v View) With(o TargetOptions) View {
	v.options = o
	return v
}

func (v View) key(listener, authority string) targetKey {
	return targetKey{listener, authority, v.overlaid, v.options.withDefaults()}
}

// Watch watches the target whose Listener has the given name, and whose virtual
// host is selected by authority. The Watcher is called with the configuration, or with an error,
// as soon as either is known. Watches of the same target share all work.
//
// cancel ends the watch. It does not wait: a call of the Watcher that has begun
// may still be running when cancel returns, so cancel may be called with any lock held, and
// from within such a call.
func (v View) Watch(listener, authority string, w Watcher) (cancel func()) {
	c := v.client
	c.mu.Lock()
	defer c.unlock()
	if c.ctx.Err() != nil {
		return func() {}
	}
	m, one := c.targets.watchLocked(v.key(listener, authority), w)
	return func() {
		c.mu.Lock()
		defer c.unlock()
		c.targets.unwatchLocked(m, one)
	}
}

// Waiting returns the reason why a target that is watched has no configuration: its error, or
// the resource and the server that it waits for, and since when. It is nil if the target has a
// configuration, or is not watched. Errors of RPCs that end before the first configuration
// contain it.
func (v View) Waiting(listener, authority string) error {
	v.client.mu.Lock()
	defer v.client.mu.Unlock()
	if m := v.client.targets.managers[v.key(listener, authority)]; m != nil {
		return m.waitingLocked()
	}
	return nil
}

// Events returns the latest events of a target, oldest first, up to [eventlog.size]. It is
// empty if the target is not watched. Shared events are in the journal of each target that they
// concern: an event about a resource in the targets that depend on it, an event about a
// server in the targets with resources from it. Repeated events, as while a server
// cannot be reached, are one event.
func (v View) Events(listener, authority string) []eventlog.Event {
	v.client.mu.Lock()
	defer v.client.mu.Unlock()
	if m := v.client.targets.managers[v.key(listener, authority)]; m != nil {
		return m.journal.Events()
	}
	return nil
}

// TargetResources is Client.Resources for the resources that a target depends on. It is empty if the
// target is not watched. Outcomes of patches have the indexes that the overlay in force has.
func (v View) TargetResources(listener, authority string) iter.Seq[ResourceStatus] {
	c := v.client
	c.mu.Lock()
	var all []ResourceStatus
	if m := c.targets.managers[v.key(listener, authority)]; m != nil {
		all = c.statusesLocked(m.depsLocked(), 2+2*len(m.clusters))
		for i := range all {
			for j, form := range all[i].Patched {
				all[i].Patched[j].Outcomes = m.selection.Locate(form.Outcomes)
			}
		}
	}
	c.mu.Unlock()
	return inOrder(all)
}

// Fetch returns the configuration of a target when all of its resources are known, possibly as
// missing, or the error of the target. Unlike a Watcher it also waits for optional resources
// (TargetOptions.LocalCluster). It watches the target until then, or until ctx ends.
func (v View) Fetch(ctx context.Context, listener, authority string) (*picker.Config, error) {
	w := make(signal, 1)
	defer v.Watch(listener, authority, w)()
	var evaluated chan struct{}
	for {
		select {
		case <-w:
		case <-evaluated:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		var cfg *picker.Config
		var err error
		if cfg, evaluated, err = v.client.settled(v.key(listener, authority)); cfg != nil || err != nil {
			return cfg, err
		}
	}
}
