// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// check makes the checks after each step.
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
		// Resources that were unsubscribed since the last check are fetched again.
		expired := w.mortal && e.key.typ == eds
		if w.cached[e] && len(e.watchers) > 0 && !held && e.state != Requested && !expired && !(w.drops && w.harmed[e.key]) {
			w.t.Errorf("%v resource %q is lost: %v", e.key.typ, e.key.name, e.err)
		}
		if len(e.watchers) > 0 && e.err != nil && !e.transient && !w.harmed[e.key] && w.named(e.key) {
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
	w.checkInvalid()
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
	m := w.c.targets.managers[watch.view.key(watch.listener, watch.authority)]
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

// settle has everything delivered, with the resources that are missing or invalid, and gives timers time to
// run out. It does so again, perhaps with a server that cannot be reached, and again with all resources
// restored, and, after outages, again with all servers. It compares after each, and at the end all
// targets have to have the present configuration.
func (w *world) settle(choice int) {
	phases := []func(){
		func() {},
		func() { w.away = choice % (len(w.servers) + 1) },
		func() { w.away = 0; w.repair() },
	}
	timeouts := 1
	if w.outages != nil {
		phases = append(phases, w.outages.end)
		timeouts = 4 // twice 30 s: of a server with resource_timer_is_transient_error, for a subscription that is repeated
	}
	for i, phase := range phases {
		phase()
		w.deliver()
		<-time.After(6 * time.Second) // for repeated rejections and rests: see nackLocked and restLocked
		w.tame()
		w.deliver()
		for range timeouts {
			<-time.After(16 * time.Second)
			w.tame()
			w.check()
			w.deliver()
		}
		w.checkDeleted()
		if w.outages != nil {
			w.checkMissing()
			w.checkQuiet()
		}
		if last := i == len(phases)-1; !w.mortal && !last {
			w.compare()
		}
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
	w.compare()
	w.waited = 0
	clear(w.harmed)
	w.age()
	w.c.mu.Lock()
	defer w.c.unlock()
	w.checkPatchesLocked()
	for key, e := range w.c.cache.entries {
		// A resource that is about to be forgotten is not followed any more, and may come back with
		// its fault when it is watched again.
		if e.err != nil && len(e.watchers) == 0 {
			w.harmed[key] = true
		}
	}
}

// compare compares the outcome of each target with the rules when everything has been
// delivered and all timers have run out.
func (w *world) compare() {
	for _, watch := range w.watches {
		watch.mu.Lock()
		last := watch.last
		watch.mu.Unlock()
		if fault := w.outcomeFault(watch.target, last); fault != "" {
			w.t.Errorf("target t%d: %s", watch.target, fault)
		}
	}
}

// current reports whether a resource is valid, and the first server of its authority can be reached, so that
// the client has to have the present version. Otherwise it may have an earlier one (A57), that of another
// server (A71), or none.
func (w *world) current(typ resource.Type, i int) bool {
	return w.present[typ][i] && w.good[typ][i] && w.up(w.first(i))
}

// outcomeFault returns how the outcome of a target differs from the rules; "" if it does not.
// A target has a configuration or an error (A57). If its Listener and routes are current, it has the
// present routes, whatever the state of their clusters: errors are confined to clusters (A74). A
// cluster has endpoints or an error; if it and its assignment are current, the present endpoints.
func (w *world) outcomeFault(target int, last outcome) string {
	r := w.link[0][target]
	switch {
	case last.config == nil && last.err == nil:
		return "neither a configuration nor an error"
	case !w.current(lds, target) || !w.current(rds, r):
		return ""
	case last.config == nil:
		return fmt.Sprintf("error %v, want routes %s", last.err, w.name(rds, r))
	}
	var got, want []string
	for _, c := range last.config.Clusters {
		got = append(got, c.Name)
	}
	for _, c := range w.routed(r) {
		want = append(want, w.name(cds, c))
	}
	if !slices.Equal(got, want) {
		return fmt.Sprintf("routes to clusters %q, want %q", got, want)
	}
	for i, c := range w.routed(r) {
		cluster, e := last.config.Clusters[i], w.link[2][c]
		switch {
		case cluster.Err == nil && len(cluster.Leaves) == 0:
			return fmt.Sprintf("cluster %q has neither endpoints nor an error", cluster.Name)
		case !w.current(cds, c):
			continue
		case cluster.Err != nil:
			return fmt.Sprintf("cluster %q has the error %v", cluster.Name, cluster.Err)
		case !w.current(eds, e):
			continue
		}
		if fault := (outcome{config: &picker.Config{Clusters: []*picker.Cluster{cluster}}}).fault(); fault != "" {
			return fault
		}
		got := cluster.Leaves[0].Service + strings.TrimPrefix(ports(cluster), cluster.Name)
		if want := fmt.Sprintf("%s %d", w.name(eds, e), w.portAt(e, w.first(e))); got != want {
			return fmt.Sprintf("cluster %q has endpoints %s, want %s", cluster.Name, got, want)
		}
	}
	return ""
}

// age counts assignments as harmed if they have a time to live.
func (w *world) age() {
	for i := range worldSize {
		if w.mortal {
			w.harm(eds, i)
		}
	}
}

// checkDeleted has the servers send the resources that there are, and checks that resources which were deleted
// are not in use. A resource that a server with resource_timer_is_transient_error does not send stays in
// use (A88).
func (w *world) checkDeleted() {
	for _, sim := range w.servers {
		sim.partial(lds, 0)
		sim.partial(cds, 0)
	}
	w.deliver()
	w.c.mu.Lock()
	defer w.c.unlock()
	for key, e := range w.c.cache.entries {
		if w.drops && isFullState(key.typ) && len(e.watchers) > 0 && e.value != nil && e.state != TimedOut && !w.there(key) {
			w.t.Errorf("%v resource %q was deleted, and is in use, in state %v: %v", key.typ, key.name, e.state, e.err)
		}
	}
}

// named reports whether a name is that of a resource of the world.
func (w *world) named(key entryKey) bool {
	for i := range worldSize {
		if w.name(key.typ, i) == key.name {
			return true
		}
	}
	return false
}

// there reports whether the servers have a resource, or may have, as far as the client can know.
func (w *world) there(key entryKey) bool {
	for i := range worldSize {
		if (w.present[key.typ][i] || !w.up(w.first(i))) && w.name(key.typ, i) == key.name {
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
			if !w.up(sim.number) {
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
