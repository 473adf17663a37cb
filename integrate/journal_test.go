// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// TestJournal: events of a kind and cluster that come within a minute are one with a count,
// whatever other such events are among them; what is of weight stands alone and divides
// them; and the latest are remembered, however many there were.
func TestJournal(t *testing.T) {
	var j journal
	start := time.Now()
	note := func(after time.Duration, kind EventKind, cluster string) {
		ev := Event{Time: start.Add(after), Last: start.Add(after), Kind: kind, Cluster: cluster, Count: 1, Err: errors.New(fmt.Sprint(after))}
		if !j.repeats(&ev) {
			j.add(&ev)
		}
	}
	list := func() (found []string) {
		for _, e := range j.events() {
			found = append(found, fmt.Sprintf("%v %s %d %v-%v %v", e.Kind, e.Cluster, e.Count, e.Time.Sub(start), e.Last.Sub(start), e.Err))
		}
		return found
	}
	for i := range time.Duration(3) {
		note(i, ConnectionFailed, "a")
		note(i, ConnectionFailed, "b")
		note(i, ConnectionLost, "a")
	}
	note(4, PriorityChanged, "a")
	note(5, ConnectionFailed, "a")
	note(5+time.Minute, ConnectionFailed, "a")
	want := []string{
		"ConnectionFailed a 3 0s-2ns 2ns", "ConnectionFailed b 3 0s-2ns 2ns", "ConnectionLost a 3 0s-2ns 2ns",
		"PriorityChanged a 1 4ns-4ns 4ns", "ConnectionFailed a 1 5ns-5ns 5ns", "ConnectionFailed a 1 1m0.000000005s-1m0.000000005s 1m0.000000005s",
	}
	if got := list(); !slices.Equal(got, want) {
		t.Errorf("the journal has\n%q, want\n%q", got, want)
	}
	for i := range 10 * journalSize {
		note(time.Duration(i), TargetFailed, "")
		if n := len(j.events()); n > journalSize {
			t.Fatalf("the journal has %d events", n)
		}
	}
	got := j.events()
	if first, last := got[0].Err.Error(), got[len(got)-1].Err.Error(); len(got) != journalSize || last != "1.279µs" || first != "1.152µs" {
		t.Errorf("of %d events the journal has %d, from %s to %s; want the latest, in order", 10*journalSize, len(got), first, last)
	}
}

// TestChanges: a configuration's event says what it changed.
func TestChanges(t *testing.T) {
	base := func() *picker.Config { return configOf(clusterOf("c", prio(eps(0, 1, 2)), prio(eps(3)))) }
	leaf := func(c *picker.Config) *picker.Leaf { return &c.Clusters[0].Leaves[0] }
	tests := []struct {
		want   string
		change func(c *picker.Config)
	}{
		{"nothing", func(*picker.Config) {}},
		{"routes", func(c *picker.Config) { c.Routes = slices.Clone(c.Routes) }},
		{"+1 clusters, +2 endpoints", func(c *picker.Config) { c.Clusters = append(c.Clusters, clusterOf("d", prio(eps(7, 8)))) }},
		{"+1 -1 clusters, +1 -4 endpoints", func(c *picker.Config) { c.Clusters[0] = clusterOf("d", prio(eps(7))) }},
		{"+2 -1 endpoints", func(c *picker.Config) { leaf(c).Priorities[0] = prio(eps(0, 9, 2, 10)) }},
		{"1 weights, 1 draining or not", func(c *picker.Config) {
			leaf(c).Priorities[0] = prio(eps(0, 1, 2))
			edit(&leaf(c).Priorities[0], 1, func(e *picker.Endpoint) { e.Weight = 5 })
			edit(&leaf(c).Priorities[0], 2, func(e *picker.Endpoint) { e.Health = picker.Draining })
		}},
		{"-1 endpoints, 1 priorities", func(c *picker.Config) { leaf(c).Priorities = leaf(c).Priorities[:1] }},
		{"1 policies", func(c *picker.Config) { leaf(c).Policy.Kind = picker.PolicyRoundRobin }},
		{"1 TLS", func(c *picker.Config) { leaf(c).TLS = &picker.TLS{} }},
		{"1 drops or limits", func(c *picker.Config) { leaf(c).MaxRequests = 3 }},
		{"1 localities", func(c *picker.Config) { leaf(c).Priorities[1].Localities[0].Weight = 9 }},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			b, _ := newTestLB(t, Config{})
			first := base()
			b.set(first)
			next := base()
			next.Routes = first.Routes
			tt.change(next)
			pass(2 * journalSpan)
			b.set(next)
			b.lock()
			events := b.journal.events()
			b.unlock()
			i := len(events) - 1
			for events[i].Kind != ConfigurationApplied {
				i--
			}
			if got := events[i].Changes.String(); got != tt.want {
				t.Errorf("the event says %q, want %q", got, tt.want)
			}
			b.Close()
		})
	}
}
