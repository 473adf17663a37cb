// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/overlay"
	"github.com/xdslb/xdslb/xds/resource"
)

// worldOverlay is an overlay that changes during a history.
type worldOverlay struct {
	choices []*overlay.Overlay

	mu       sync.Mutex
	current  *overlay.Overlay
	watchers map[int]func()
	next     int
}

// worldPatches are the patches of the overlays of a world. Each overlay has some of them.
var worldPatches = []string{
	`{"resource": "cluster", "name": "*1", "merge": {"circuit_breakers": {"thresholds": [{"max_requests": 7}]}}}`,
	`{"resource": "cluster", "name": "c*", "target": "xds:///t*", "merge": {"alt_stat_name": "patched", "lb_policy": "RING_HASH"}}`,
	`{"resource": "cluster", "name": "*", "merge": {"lb_policy": "CLUSTER_PROVIDED"}}`,
	`{"resource": "route", "name": "*", "when_unset": true, "merge": {"route": {"timeout": "3s"}}}`,
	`{"resource": "route", "name": "*r2*", "merge": {"match": {"prefix": null, "path": "/"}}}`,
	`{"resource": "route_configuration", "name": "r0", "merge": {"max_direct_response_body_size_bytes": 5}}`,
	`{"resource": "listener", "name": "t*", "target": "xds:///t2", "merge": {"api_listener": {"api_listener": {"common_http_protocol_options": {"max_stream_duration": "7s"}}}}}`,
	`{"resource": "endpoints", "name": "e*", "merge": {"policy": {"drop_overloads": [{"category": "test", "drop_percentage": {"numerator": 25}}]}}}`,
}

func newWorldOverlay(t testing.TB, seed int) *worldOverlay {
	o := &worldOverlay{choices: []*overlay.Overlay{nil}, watchers: map[int]func(){}}
	for i := range 7 {
		document := ""
		for j, p := range worldPatches {
			if (seed+i*37)>>j%2 == 0 {
				continue
			}
			if document != "" {
				document += ","
			}
			document += p
		}
		parsed, err := overlay.Parse("test", []byte(`{"patches": [`+document+`]}`))
		kit.Must(t, err)
		o.choices = append(o.choices, parsed)
	}
	o.current = o.choices[1]
	return o
}

// Overlay implements overlaySource.
func (o *worldOverlay) Overlay() *overlay.Overlay {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current
}

// Watch implements overlaySource.
func (o *worldOverlay) Watch(changed func()) (stop func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.next
	o.next++
	o.watchers[n] = changed
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.watchers, n)
	}
}

// change replaces the overlay.
func (o *worldOverlay) change(choice int) {
	o.mu.Lock()
	o.current = o.choices[choice%len(o.choices)]
	var all []func()
	for _, changed := range o.watchers {
		all = append(all, changed)
	}
	o.mu.Unlock()
	for _, changed := range all {
		changed()
	}
}

// view returns the view of the next watch of a target: every other one has the overlay.
func (w *world) view(target int) View {
	if w.overlay == nil || len(w.watches)%2 == 0 {
		return w.c.View(nil, "")
	}
	return View{w.c, overlaid{w.overlay, fmt.Sprint("xds:///t", target)}, TargetOptions{}}
}

// checkPatchesLocked compares the values of patched entries with values that are made from the bytes
// as received, and the selections of the targets with the overlay.
func (w *world) checkPatchesLocked() {
	for _, e := range w.c.cache.entries {
		for _, p := range e.patchedVariantsLocked() {
			base, e := p.base, p.entry
			if base.value == nil || base.raw == nil {
				if base.value == nil && e.value != nil {
					w.t.Errorf("%v resource %q has gone, and its patched form has not", base.key.typ, base.key.name)
				}
				continue
			}
			want, options := base.value, w.c.decodeOptions(base.from)
			decode := func(value []byte) (any, error) { return resource.Decode(base.key.typ, value, options) }
			if r := p.selection.Apply(base.key.typ, base.key.name, base.raw, decode); r.Value != nil {
				want = r.Value
				if of, ok := base.value.(*resource.Endpoints); ok {
					merged := *of
					merged.Drops = r.Value.(*resource.Endpoints).Drops
					want = &merged
				}
			}
			if !reflect.DeepEqual(e.value, want) {
				w.t.Errorf("%v resource %q is patched to %+v, want %+v", base.key.typ, base.key.name, e.value, want)
			}
			if e.state != base.state || fmt.Sprint(e.err) != fmt.Sprint(base.err) || e.transient != base.transient || e.from != base.from {
				w.t.Errorf("%v resource %q is in state %v (%v), and its patched form in state %v (%v)", base.key.typ, base.key.name, base.state, base.err, e.state, e.err)
			}
		}
	}
	for _, m := range w.c.targets.managers {
		if w.overlay != nil && m.key.view.source != nil && m.overlay != w.overlay.Overlay() {
			w.t.Errorf("target %q does not have the present overlay", m.key.listener)
		}
	}
}
