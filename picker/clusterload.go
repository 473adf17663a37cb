// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"iter"
	"maps"
	"math"
	"sync"
)

// A ClusterLoad has the counters of one (cluster, EDS service name) pair that an LRS client
// reports. The owner of the cluster gets the counters from it when it configures picks, and
// passes them to Build. The reporter reads them.
//
// The zero ClusterLoad is empty and ready to use. It must not be copied. It is safe for
// concurrent use. Its methods lock a mutex; picks do not call them.
//
// Counters outlive the configuration that named them, since RPCs may be in flight and the last
// counts unreported (T-LRS-3). So removal takes two steps: the owner declares the counters in
// use with Retain, and the reporter removes the reported ones with Forget. The memory is
// bounded by the counters that are in use or were in use since the last report.
type ClusterLoad struct {
	// Unreported means that the results of the localities are not read, which saves each RPC an
	// atomic addition. It must not be changed after first use.
	Unreported bool

	overload Counter

	mu         sync.Mutex
	localities counters[LocalityID, Load]
	drops      counters[string, Counter]
	metrics    map[LocalityID]*Metrics
}

// Locality returns the Load of a locality, the same one until Forget removes it.
func (c *ClusterLoad) Locality(id LocalityID) *Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.localities.get(id); l != nil {
		return l
	}
	l := &Load{unreported: c.Unreported}
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

// Overload returns the counter of RPCs rejected by the circuit breaker, which belong to no
// category (A32).
func (c *ClusterLoad) Overload() *Counter { return &c.overload }

// Localities iterates over the localities in no particular order, including unused ones that
// are not forgotten yet. The loop may call methods of c.
func (c *ClusterLoad) Localities() iter.Seq2[LocalityID, *Load] {
	return func(yield func(LocalityID, *Load) bool) { each(&c.mu, &c.localities, yield) }
}

// Drops iterates over the drop categories like Localities.
func (c *ClusterLoad) Drops() iter.Seq2[string, *Counter] {
	return func(yield func(string, *Counter) bool) { each(&c.mu, &c.drops, yield) }
}

// Retain declares that only the localities and drop categories of leaf are in use. O(previous
// and new localities and drops).
func (c *ClusterLoad) Retain(leaf *Leaf) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Unreported {
		// Without a reporter Forget is not called.
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

// Forget removes a locality that is no longer in use if it has no RPCs in flight, its counts are
// still read, the counts that were reported, and TakeMetrics has returned its metrics. It reports
// whether it removed the locality. If the locality is used again, it gets a new Load that starts
// from 0, so a reporter must key its previous counts by *Load.
func (c *ClusterLoad) Forget(id LocalityID, read LoadSnapshot) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.localities.retired[id]
	if l == nil || read.InProgress > 0 || l.Snapshot() != read || c.metrics[id].pending() {
		return false
	}
	delete(c.localities.retired, id)
	delete(c.metrics, id)
	return true
}

// ForgetDrop removes a drop category that is no longer in use if its count is still read. It
// reports whether it removed the category.
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

// counters has the counters of one kind: the ones in use, and the retired ones that are not
// forgotten yet.
type counters[K comparable, T any] struct {
	used, retired map[K]*T
}

// get returns the counter of key and marks it as in use. It returns nil for an unknown key.
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

// each yields all counters from a copy that it makes under mu. No lock is held while the loop
// runs.
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

// Metrics sums the load metrics (ORCA) that backends of a locality send at the end of RPCs, for
// load reports (A85). It is a map under a mutex: few RPCs have metrics, and decoding them costs
// more than the lock. The zero Metrics is ready to use. It must not be copied.
type Metrics struct {
	mu    sync.Mutex
	sums  map[string]MetricSum
	names int // bytes of the names in sums
}

// A MetricSum is the sum of a metric over the RPCs that reported it.
type MetricSum struct {
	Count uint64
	Total float64
}

// plus returns the sum of s and o, which is finite if both are.
func (s MetricSum) plus(o MetricSum) MetricSum {
	return MetricSum{s.Count + o.Count, min(max(s.Total+o.Total, -math.MaxFloat64), math.MaxFloat64)}
}

// Backends choose the names of metrics. These are the limits for the sums of a locality between two
// reports, so that a backend can neither take much memory nor make reports too large for their
// servers. Metrics beyond the limits are not counted.
const (
	maxMetrics     = 1000     // names
	maxMetricName  = 256      // bytes of a name
	maxMetricNames = 64 << 10 // bytes of all names
)

// Add counts one RPC that reported value.
func (m *Metrics) Add(name string, value float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sums == nil {
		m.sums = make(map[string]MetricSum)
	}
	addMetric(m.sums, &m.names, name, MetricSum{1, value})
}

// addMetric adds a sum to others, within the limits. names is the number of bytes of their names.
func addMetric(sums map[string]MetricSum, names *int, name string, sum MetricSum) {
	before, ok := sums[name]
	if !ok {
		if len(sums) >= maxMetrics || len(name) > maxMetricName || *names+len(name) > maxMetricNames {
			return
		}
		*names += len(name)
	}
	sums[name] = before.plus(sum)
}

// MergeMetrics adds sums to those in to, both of one locality, within the limits of Metrics.
func MergeMetrics(to, sums map[string]MetricSum) {
	names := 0
	for name := range to {
		names += len(name)
	}
	for name, sum := range sums {
		addMetric(to, &names, name, sum)
	}
}

// pending reports whether there are sums to take. It is false for a nil Metrics.
func (m *Metrics) pending() bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sums) > 0
}

// take returns the sums since the last take, or nil without any.
func (m *Metrics) take() map[string]MetricSum {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.sums) == 0 {
		return nil
	}
	sums := m.sums
	m.sums, m.names = nil, 0
	return sums
}

// Metrics returns the Metrics of a locality. It returns the same Metrics until Forget removes
// the locality.
func (c *ClusterLoad) Metrics(id LocalityID) *Metrics {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.metrics[id]
	if m == nil {
		m = new(Metrics)
		if c.metrics == nil {
			c.metrics = make(map[LocalityID]*Metrics)
		}
		c.metrics[id] = m
	}
	return m
}

// TakeMetrics calls take for all localities and returns those that have sums.
func (c *ClusterLoad) TakeMetrics() map[LocalityID]map[string]MetricSum {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all map[LocalityID]map[string]MetricSum
	for id, m := range c.metrics {
		if sums := m.take(); sums != nil {
			if all == nil {
				all = make(map[LocalityID]map[string]MetricSum)
			}
			all[id] = sums
		}
	}
	return all
}
