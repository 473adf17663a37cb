// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import "github.com/xdslb/xdslb/picker"

// A source has the counts of one user of a cluster. Each number is first seen, to be reported,
// and then, after the report has been sent, recorded as sent. It is guarded by Reporter.mu.
type source struct {
	load    *picker.ClusterLoad
	stopped bool
	last    bool // stopped before the counters were read

	localities map[*picker.Load]*tally
	drops      map[*picker.Counter]*count
	overload   count
	// metrics were taken from load and not sent yet (A85).
	metrics map[picker.LocalityID]map[string]picker.MetricSum
}

// tally is the reporter's state of a Load.
type tally struct {
	id   picker.LocalityID
	seen picker.LoadSnapshot
	// sent.Issued does not decrease with the Load's: the difference remains 0 until the Load
	// has caught up.
	sent picker.LoadSnapshot
}

// count is the reporter's state of a Counter.
type count struct {
	category   string
	seen, sent uint64
}

func newSource() *source {
	return &source{
		load:       new(picker.ClusterLoad),
		localities: make(map[*picker.Load]*tally),
		drops:      make(map[*picker.Counter]*count),
	}
}

// readCounters reads all counters.
func (s *source) readCounters() {
	for id, load := range s.load.Localities() {
		t := s.localities[load]
		if t == nil {
			t = &tally{id: id}
			s.localities[load] = t
		}
		t.seen = load.Snapshot()
	}
	for category, counter := range s.load.Drops() {
		n := s.drops[counter]
		if n == nil {
			n = &count{category: category}
			s.drops[counter] = n
		}
		n.seen = counter.Load()
	}
	s.overload.seen = s.load.Overload().Load()
	for id, sums := range s.load.TakeMetrics() {
		s.metrics = addMetrics(s.metrics, id, sums)
	}
}

// commit records the seen counts as sent, forgets unused counters, and reports whether no RPC
// was in progress.
func (s *source) commit() (quiet bool) {
	quiet = true
	for load, t := range s.localities {
		issued := max(t.seen.Issued, t.sent.Issued)
		t.sent = t.seen
		t.sent.Issued = issued
		if t.seen.InProgress > 0 {
			quiet = false
		} else if s.load.Forget(t.id, t.seen) {
			delete(s.localities, load)
		}
	}
	for counter, n := range s.drops {
		n.sent = n.seen
		if s.load.ForgetDrop(n.category, n.seen) {
			delete(s.drops, counter)
		}
	}
	s.overload.sent = s.overload.seen
	s.metrics = nil
	return quiet
}

// counts are numbers to report. Zero numbers are omitted. The zero value is empty.
type counts struct {
	localities map[picker.LocalityID]picker.LoadSnapshot
	drops      map[string]uint64
	overloads  uint64
	metrics    map[picker.LocalityID]map[string]picker.MetricSum
}

func (c *counts) empty() bool {
	return len(c.localities) == 0 && len(c.drops) == 0 && c.overloads == 0 && len(c.metrics) == 0
}

// addUnsent adds the counts of s that were seen and not sent, and the RPCs in progress.
func (c *counts) addUnsent(s *source) {
	for _, t := range s.localities {
		c.addLocality(t.id, picker.LoadSnapshot{
			Issued:     max(t.seen.Issued, t.sent.Issued) - t.sent.Issued,
			OK:         t.seen.OK - t.sent.OK,
			Failed:     t.seen.Failed - t.sent.Failed,
			InProgress: t.seen.InProgress,
		})
	}
	for _, n := range s.drops {
		c.addDrops(n.category, n.seen-n.sent)
	}
	c.overloads += s.overload.seen - s.overload.sent
	for id, sums := range s.metrics {
		c.metrics = addMetrics(c.metrics, id, sums)
	}
}

// add adds other, except for the RPCs in progress, which are an outdated gauge.
func (c *counts) add(other *counts) {
	for id, l := range other.localities {
		l.InProgress = 0
		c.addLocality(id, l)
	}
	for category, n := range other.drops {
		c.addDrops(category, n)
	}
	c.overloads += other.overloads
	for id, sums := range other.metrics {
		c.metrics = addMetrics(c.metrics, id, sums)
	}
}

// addMetrics adds the sums of a locality to m, which may be nil, within the limits of
// picker.Metrics: reports that fail would collect more and more names otherwise.
func addMetrics(m map[picker.LocalityID]map[string]picker.MetricSum, id picker.LocalityID, sums map[string]picker.MetricSum) map[picker.LocalityID]map[string]picker.MetricSum {
	if m == nil {
		m = make(map[picker.LocalityID]map[string]picker.MetricSum)
	}
	if m[id] == nil {
		m[id] = make(map[string]picker.MetricSum, len(sums))
	}
	picker.MergeMetrics(m[id], sums)
	return m
}

func (c *counts) addLocality(id picker.LocalityID, l picker.LoadSnapshot) {
	if l == (picker.LoadSnapshot{}) {
		return
	}
	if c.localities == nil {
		c.localities = make(map[picker.LocalityID]picker.LoadSnapshot)
	}
	sum := c.localities[id]
	sum.Issued += l.Issued
	sum.OK += l.OK
	sum.Failed += l.Failed
	sum.InProgress += l.InProgress
	c.localities[id] = sum
}

func (c *counts) addDrops(category string, n uint64) {
	if n == 0 {
		return
	}
	if c.drops == nil {
		c.drops = make(map[string]uint64)
	}
	c.drops[category] += n
}
