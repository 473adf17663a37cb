// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "sync"

// Metrics adds up what backends of a locality said about their load at the end
// of RPCs (ORCA), for load reports (A85). Few RPCs bring any, and those that do
// have decoded a message for it, so it is a map under a mutex. The zero Metrics
// is ready to use; it must not be copied.
type Metrics struct {
	mu   sync.Mutex
	sums map[string]MetricSum
}

// A MetricSum is the sum of a metric over the RPCs that reported it.
type MetricSum struct {
	Count uint64
	Total float64
}

// maxMetrics bounds the names that backends can make up between two reports.
const maxMetrics = 1000

// Add counts one RPC that reported value.
func (m *Metrics) Add(name string, value float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.sums[name]
	if !ok {
		if len(m.sums) >= maxMetrics {
			return
		}
		if m.sums == nil {
			m.sums = make(map[string]MetricSum)
		}
	}
	s.Count++
	s.Total += value
	m.sums[name] = s
}

// Take returns the sums since the last Take, or nil if there are none, and
// starts from nothing.
func (m *Metrics) Take() map[string]MetricSum {
	m.mu.Lock()
	defer m.mu.Unlock()
	sums := m.sums
	m.sums = nil
	return sums
}

// Metrics returns the sums of a locality's metrics, the same ones until they
// are forgotten with the locality.
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

// TakeMetrics takes the sums of all localities that have any.
func (c *ClusterLoad) TakeMetrics() map[LocalityID]map[string]MetricSum {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all map[LocalityID]map[string]MetricSum
	for id, m := range c.metrics {
		if sums := m.Take(); sums != nil {
			if all == nil {
				all = make(map[LocalityID]map[string]MetricSum)
			}
			all[id] = sums
		}
	}
	return all
}
