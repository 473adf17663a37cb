// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"iter"
	"maps"
	"sync"
)

// A ClusterLoad holds the counters of one (cluster, EDS service name) pair: what
// an LRS client reports of it. The owner of the cluster asks for the counters
// while it configures picks, and hands them to Build; the reporter reads them.
//
// The zero ClusterLoad is empty and ready to use. It must not be copied. Any
// number of goroutines may use it. Its methods lock; picks do not call them.
//
// Counters outlive the configuration that named them, since RPCs may be under
// way and the last counts unreported (T-LRS-3). So removal takes two: Retain, by
// which the owner says what is in use, and Forget, by which the reporter says
// what it has read. The memory is bounded by what is in use and what was since
// the last report.
type ClusterLoad struct {
	// Silent says that nobody reads the localities' results, which saves each
	// RPC an atomic addition. It is set before first use, or never.
	Silent bool

	overload Counter

	mu         sync.Mutex
	localities counters[LocalityID, Load]
	drops      counters[string, Counter]
	metrics    map[LocalityID]*Metrics
}

// Locality returns the Load of a locality, which is the same one until it is
// forgotten.
func (c *ClusterLoad) Locality(id LocalityID) *Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.localities.get(id); l != nil {
		return l
	}
	l := &Load{silent: c.Silent}
	c.localities.add(id, l)
	return l
}

// Drop returns the counter of RPCs dropped by a category.
func (c *ClusterLoad) Drop(category string) *Counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.drops.get(category); n != nil {
		return n
	}
	n := new(Counter)
	c.drops.add(category, n)
	return n
}

// Overload returns the counter of RPCs that the circuit breaker refused. They
// belong to no category (A32).
func (c *ClusterLoad) Overload() *Counter { return &c.overload }

// Localities iterates over the localities in no particular order, including
// those that are out of use but not forgotten. The loop may call methods of c.
func (c *ClusterLoad) Localities() iter.Seq2[LocalityID, *Load] {
	return func(yield func(LocalityID, *Load) bool) { each(&c.mu, &c.localities, yield) }
}

// Drops iterates over the drop categories like Localities.
func (c *ClusterLoad) Drops() iter.Seq2[string, *Counter] {
	return func(yield func(string, *Counter) bool) { each(&c.mu, &c.drops, yield) }
}

// Retain says that the localities and drop categories of leaf, and no others,
// are in use. O(localities and drops, now and before).
func (c *ClusterLoad) Retain(leaf *Leaf) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Silent {
		// Nobody reads the counters, so nobody would ever forget them.
		defer func() { clear(c.localities.retired); clear(c.drops.retired) }()
	}
	c.localities.retireAll()
	for i := range leaf.Priorities {
		for j := range leaf.Priorities[i].Localities {
			c.localities.get(leaf.Priorities[i].Localities[j].ID)
		}
	}
	c.drops.retireAll()
	for i := range leaf.Drops {
		c.drops.get(leaf.Drops[i].Category)
	}
}

// Forget removes a locality that is out of use, if it is idle and the reporter
// has reported all of it, that is, if its counts are still read. It reports
// whether it did. The Load of a locality that comes back afterwards is another
// one and starts from 0, so a reporter keeps what it read by *Load.
func (c *ClusterLoad) Forget(id LocalityID, read LoadSnapshot) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.localities.retired[id]
	if l == nil || read.InProgress > 0 || l.Snapshot() != read {
		return false
	}
	delete(c.localities.retired, id)
	delete(c.metrics, id)
	return true
}

// ForgetDrop removes a drop category that is out of use, if its count is still
// read. It reports whether it did.
func (c *ClusterLoad) ForgetDrop(category string, read uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.drops.retired[category]
	if n == nil || n.Load() != read {
		return false
	}
	delete(c.drops.retired, category)
	return true
}

// counters are the counters of one kind, those in use apart from those that
// wait to be forgotten.
type counters[K comparable, T any] struct {
	used, retired map[K]*T
}

// get returns the counter of key, or nil if there is none. It is in use from
// then on.
func (c *counters[K, T]) get(key K) *T {
	t := c.retired[key]
	if t == nil {
		return c.used[key]
	}
	delete(c.retired, key)
	c.add(key, t)
	return t
}

func (c *counters[K, T]) add(key K, t *T) {
	if c.used == nil {
		c.used = make(map[K]*T)
	}
	c.used[key] = t
}

func (c *counters[K, T]) retireAll() {
	if c.retired == nil {
		c.retired = make(map[K]*T)
	}
	maps.Copy(c.retired, c.used)
	clear(c.used)
}

// each yields all counters, of a copy that is made under mu: no lock is held
// while the loop runs.
func each[K comparable, T any](mu *sync.Mutex, c *counters[K, T], yield func(K, *T) bool) {
	mu.Lock()
	all := make(map[K]*T, len(c.used)+len(c.retired))
	maps.Copy(all, c.used)
	maps.Copy(all, c.retired)
	mu.Unlock()
	for key, t := range all {
		if !yield(key, t) {
			return
		}
	}
}
