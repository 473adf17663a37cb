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
		n.b.follow(n.c)
	}
}

func (n *clusterEntry) end(f func()) {
	n.b.lock()
	defer n.b.unlock()
	f()
	n.b.follow(n.c)
}

func (n *clusterEntry) after(d time.Duration, slot **time.Timer, f func()) {
	n.b.after(d, slot, func() {
		f()
		n.b.follow(n.c)
	})
}

// follow has a cluster handle the marks of an event.
func (b *Balancer) follow(c *cluster) {
	b.take(c, c.follow(&followed{sessions: b.sessions, slow: b.slow()}))
}
