// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// check looks for what must not be.
func (w *world) check() {
	for _, sim := range w.servers {
		if v := sim.checker.Violations(); len(v) > 0 {
			w.t.Errorf("server %d: %s", sim.number, v[0])
		}
	}
	w.c.mu.Lock()
	cached := map[*entry]bool{}
	for _, e := range w.c.cache.entries {
		held := e.value != nil || e.keptLocked() != nil
		if held && len(e.watchers) > 0 {
			cached[e] = true
		}
		// What was unsubscribed from since the last check is fetched anew.
		expired := w.mortal && e.key.typ == eds
		if w.cached[e] && len(e.watchers) > 0 && !held && e.state != Requested && !expired && !(w.drops && w.harmed[e.key]) {
			w.t.Errorf("%v resource %q is lost: %v", e.key.typ, e.key.name, e.err)
		}
		if len(e.watchers) > 0 && e.err != nil && !e.transient && !w.harmed[e.key] {
			w.t.Errorf("%v resource %q is unharmed, and its state is %v: %v", e.key.typ, e.key.name, e.state, e.err)
		}
	}
	w.cached = cached
	w.c.mu.Unlock() // it has only looked
	counted := map[ResourceKind]int{}
	for s := range w.c.Resources() {
		counted[s.kind()]++
	}
	if got := w.c.CountResources(); !maps.Equal(got, counted) {
		w.t.Errorf("CountResources() = %v, and there are %v", got, counted)
	}
	for _, watch := range w.watches {
		watch.mu.Lock()
		heard := watch.heard
		watch.heard = nil
		watch.mu.Unlock()
		for _, o := range heard {
			fault := o.fault()
			if watch.whole && fault != "" && len(w.harmed) == 0 && !w.confined(watch, o) {
				w.t.Errorf("target t%d was served, and is not any more: %s", watch.target, fault)
			}
			watch.whole = watch.whole || fault == ""
		}
	}
}

// confined reports whether the faults of a configuration are errors of clusters that their servers have
// never sent, and cannot send at present, whereas the servers of the resources that name them could
// send these: the errors are confined to the clusters (A74).
func (w *world) confined(watch *worldWatch, o outcome) bool {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	cutOff := func(typ resource.Type, name, by string) bool {
		e := w.c.cache.entries[entryKey{typ, name}]
		return e != nil && e.value == nil && e.state == Requested && e.transient && authorityOf(name) != authorityOf(by)
	}
	m := w.c.targets.managers[watch.view.key(w.name(lds, watch.target), "host")]
	if o.config == nil || m == nil || m.active == nil {
		return false
	}
	for _, c := range o.config.Clusters {
		one := outcome{config: &picker.Config{Clusters: []*picker.Cluster{c}}}
		if one.fault() == "" || cutOff(cds, c.Name, m.active.listener.RouteConfigName) {
			continue
		}
		if len(c.Leaves) != 1 || !cutOff(eds, c.Leaves[0].Service, c.Name) {
			return false
		}
	}
	return true
}

// settle has everything delivered, harm included, and gives timers time to
// run out; then once more, perhaps with a server out of reach. Then it repairs
// everything, has that delivered, and compares.
func (w *world) settle(choice int) {
	for _, phase := range []func(){
		func() {},
		func() { w.away = choice % (len(w.servers) + 1) },
		func() { w.away = 0; w.repair() },
	} {
		phase()
		w.deliver()
		<-time.After(6 * time.Second) // for what repeats a rejection, or rests: see nackLocked and restLocked
		w.tame()
		w.deliver()
		<-time.After(16 * time.Second)
		w.tame()
		w.check()
		w.deliver()
		w.checkDeleted()
	}
	if w.mortal {
		for _, sim := range w.servers {
			sim.partial(eds, 0xff) // heartbeats of all
		}
		w.deliver()
		<-time.After(6 * time.Second) // see above
		w.tame()
		w.deliver()
	}
	if w.t.Failed() {
		return
	}
	for _, watch := range w.watches {
		r := w.link[0][watch.target]
		c := w.link[1][r]
		e := w.link[2][c]
		want := fmt.Sprintf("%s of %s %s: %d", w.name(lds, watch.target), w.name(cds, c), w.name(eds, e), w.portAt(e, w.first(e)))
		watch.mu.Lock()
		last := watch.last
		watch.mu.Unlock()
		if last.config == nil {
			w.t.Errorf("target t%d is not served: %v; want %s", watch.target, last.err, want)
			continue
		}
		if fault := last.fault(); fault != "" {
			w.t.Errorf("target t%d: %s; want %s", watch.target, fault, want)
			continue
		}
		cluster := last.config.Clusters[0]
		got := fmt.Sprintf("%s of %s %s: %s", w.name(lds, watch.target), cluster.Name, cluster.Leaves[0].Service,
			strings.TrimPrefix(ports(cluster), cluster.Name+" "))
		if got != want || len(last.config.Clusters) != 1 {
			w.t.Errorf("target t%d has %s; want %s", watch.target, got, want)
		}
	}
	w.waited = 0
	clear(w.harmed)
	w.age()
	w.c.mu.Lock()
	defer w.c.unlock()
	w.checkPatchesLocked()
	for key, e := range w.c.cache.entries {
		// What is about to be forgotten is not followed any more, and may come
		// back with its fault when it is watched again.
		if e.err != nil && len(e.watchers) == 0 {
			w.harmed[key] = true
		}
	}
}

// age counts assignments as harmed if they have a time to live.
func (w *world) age() {
	for i := range worldSize {
		if w.mortal {
			w.harm(eds, i)
		}
	}
}

// checkDeleted has the servers say what there is, and looks for what is in use
// and was deleted.
func (w *world) checkDeleted() {
	for _, sim := range w.servers {
		sim.partial(lds, 0)
		sim.partial(cds, 0)
	}
	w.deliver()
	w.c.mu.Lock()
	defer w.c.unlock()
	for key, e := range w.c.cache.entries {
		if w.drops && isFullState(key.typ) && len(e.watchers) > 0 && e.value != nil && !w.there(key) {
			w.t.Errorf("%v resource %q was deleted, and is in use", key.typ, key.name)
		}
	}
}

// there reports whether the servers have a resource.
func (w *world) there(key entryKey) bool {
	for i := range worldSize {
		if w.present[key.typ][i] && w.name(key.typ, i) == key.name {
			return true
		}
	}
	return false
}

// repair makes everything whole that is not.
func (w *world) repair() {
	for typ := range w.present {
		for i := range worldSize {
			if w.present[typ][i] && w.good[typ][i] {
				continue
			}
			to := i
			if typ < int(eds) {
				to = w.link[typ][i]
			}
			w.change(resource.Type(typ), i, to)
		}
	}
}

// deliver connects the servers that the client wants, and delivers messages until
// there are none.
func (w *world) deliver() {
	for range 2000 {
		busy := false
		for _, sim := range w.servers {
			if sim.number+1 == w.away {
				busy = sim.s != nil && sim.s.err == nil && sim.refuse() || busy
				w.tame()
				continue
			}
			busy = sim.connect() || busy
			w.tame()
			busy = sim.send() || busy
			busy = sim.hear() || busy
			for typ := range sim.types() {
				busy = sim.receive(typ) || busy
				w.tame()
			}
		}
		w.check()
		if !busy || w.t.Failed() {
			return
		}
	}
	w.t.Errorf("the client and its servers do not become idle")
}
