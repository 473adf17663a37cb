// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"testing"

	"github.com/xdslb/xdslb/picker"
)

// TestClusterListForgets: the published state of a cluster that has left the list does not count in
// the channel's state.
func TestClusterListForgets(t *testing.T) {
	stays, goes := &cluster{}, &cluster{}
	publish := func(l *clusterList, status map[*cluster]picker.Connectivity) {
		changed, _ := l.begin()
		for _, c := range changed {
			c.dirty = false
			l.count(c, status[c])
		}
		l.done()
	}
	var l clusterList
	l.set([]*cluster{stays, goes})
	publish(&l, map[*cluster]picker.Connectivity{stays: picker.Connecting, goes: picker.Ready})
	if got := l.best(); got != picker.Ready {
		t.Errorf("with a cluster that is ready: %v", got)
	}
	l.set([]*cluster{stays})
	publish(&l, map[*cluster]picker.Connectivity{stays: picker.Connecting})
	if got := l.best(); got != picker.Connecting {
		t.Errorf("when that has gone: %v, want %v", got, picker.Connecting)
	}
	l.mark(stays)
	publish(&l, map[*cluster]picker.Connectivity{stays: picker.Idle})
	if got := l.best(); got != picker.Idle {
		t.Errorf("after another publication of the one that is left: %v, want %v", got, picker.Idle)
	}
}
