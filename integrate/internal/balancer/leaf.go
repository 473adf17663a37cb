// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import "github.com/xdslb/xdslb/xds/eventlog"

// leaf is the live counterpart of a picker.Leaf.
type leaf struct {
	common
	priorities []*priority
	detector   detector
}

// endpoints visits the endpoints of all priorities.
func (l *leaf) endpoints(yield func(*endpoint) bool) {
	for _, p := range l.priorities {
		for e := range p.endpoints {
			if !yield(e) {
				return
			}
		}
	}
}

// close releases all resources of the leaf.
func (l *leaf) close(changes *eventlog.Changes) {
	l.detector.stop()
	l.rt.Call(l.security.Close)
	for _, p := range l.priorities {
		p.place = -1
		p.enter(dormant)
		for g := range p.liveGroups {
			g.close()
		}
		p.groups = nil
		for e := range p.endpoints {
			changes.EndpointsRemoved++
			e.remove()
		}
	}
	l.releaseCounters()
}
