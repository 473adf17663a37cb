// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// TestChanges: the event of a configuration lists its changes.
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
			kit.Pass(2 * eventlog.Interval)
			b.set(next)
			b.lock()
			events := b.rec.journal.Events()
			b.unlock()
			i := len(events) - 1
			for events[i].Kind != eventlog.ConfigurationApplied {
				i--
			}
			if got := events[i].Change; got != tt.want {
				t.Errorf("the event's text is %q, want %q", got, tt.want)
			}
			b.Close()
		})
	}
}

// TestJournalIsSmall (LB-SEC-1): texts that a control plane or a backend chooses are cut
// in the journal, which would keep the last 128 of them otherwise.
func TestJournalIsSmall(t *testing.T) {
	b, _ := newTestLB(t, Config{})
	for i := range 4 {
		b.Error(errors.New(fmt.Sprint(i) + strings.Repeat("é", 1<<20)))
	}
	size := 0
	for _, ev := range b.rec.journal.Events() {
		size += len(ev.Error)
	}
	if size > 8<<10 {
		t.Errorf("the texts of 4 events take %d bytes", size)
	}
	if last := b.rec.journal.Events()[3].Error; !strings.HasPrefix(last, "3é") || !strings.HasSuffix(last, "é…") {
		t.Errorf("the text is %q", last)
	}
}
