// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import "time"

// This file has the entry and exit of the balancer's events.

// lock begins an event. unlock ends the event and acts on its changes.
func (b *Balancer) lock() { b.rt.Lock() }

func (b *Balancer) unlock() {
	b.settle()
	b.rt.Unlock()
}

// after starts a timer in slot. Its expiry is an event.
func (b *Balancer) after(d time.Duration, slot **time.Timer, f func()) {
	b.rt.After(d, slot, func() {
		f()
		b.settle()
	})
}

// callThen is CallThen for a function that runs as an event.
func (b *Balancer) callThen(first, f func()) {
	b.rt.CallThen(first, func() {
		f()
		b.settle()
	})
}

// entry is how the lower layers of a cluster start later events at the top: states of SubConns,
// timers, calls of child policies.
type entry interface {
	// do takes the mutex and runs f, unless the balancer is closed, and ends the event. The
	// caller must not hold the mutex.
	do(f func())
	// end is like do, for events that must also be handled after the balancer is closed.
	end(f func())
	// after runs f as an event when a timer expires, unless the timer is stopped, or replaced
	// in its slot, before. The caller holds the mutex.
	after(d time.Duration, slot **time.Timer, f func())
}

// clusterEntry implements entry for the lower layers of a cluster.
type clusterEntry struct {
	b *Balancer
	c *cluster
}

// newCluster returns a cluster whose events enter at b.
func (b *Balancer) newCluster() *cluster {
	c := &cluster{channel: &b.channel}
	c.entry = &clusterEntry{b, c}
	return c
}

func (n *clusterEntry) do(f func()) {
	n.b.lock()
	defer n.b.unlock()
	if !n.b.rt.Closed() {
		f()
		n.b.collectChange(n.c)
	}
}

func (n *clusterEntry) end(f func()) {
	n.b.lock()
	defer n.b.unlock()
	f()
	n.b.collectChange(n.c)
}

func (n *clusterEntry) after(d time.Duration, slot **time.Timer, f func()) {
	n.b.after(d, slot, func() {
		f()
		n.b.collectChange(n.c)
	})
}

// collectChange has a cluster handle the marks of an event, and collects its change for settle.
func (b *Balancer) collectChange(c *cluster) {
	b.take(c, c.handleMarks(&eventContext{sessions: b.sessions, slow: b.slow()}))
}
