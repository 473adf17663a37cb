// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

// This file defines how a change is returned up the balancer's tree. Events enter at the top
// and are passed down by call. Endpoints, connections and child policies mark their changes in
// the tally of their priority. At the end of the event the owners handle the marks: the
// priority updates its phase, the cluster chooses a priority, and the balancer publishes.

// mark is a set of changes of a priority's endpoints.
type mark uint8

const (
	grew      mark = 1 << iota // an endpoint became READY
	states                     // an endpoint changed its state in any other way
	phased                     // the priority changed its phase by a timer
	picks                      // the data that picks read has changed
	pickers                    // a child policy has a new picker
	connError                  // the text of the latest connection error has changed
)

// tally sums up a priority's endpoints and the changes that an event made to them. Endpoints,
// connections and child policies write it, the priority and the cluster read it.
type tally struct {
	counts       [4]int // endpoints by picker.Connectivity, without draining ones
	needsConnect bool   // endpoints were added and do not connect yet
	stale        bool   // the data built from the endpoints and their connections is out of date
	phase        phase
	marks        mark
	place        int32     // of the priority in cluster.order; -1 if it is not listed
	changed      *[]*tally // the cluster's list of tallies with marks
}

// note adds marks.
func (t *tally) note(m mark) {
	if t.marks == 0 {
		*t.changed = append(*t.changed, t)
	}
	t.marks |= m
	t.stale = t.stale || m&picks != 0
}

// invalidate is called when the set of endpoints changes.
func (t *tally) invalidate() { t.needsConnect, t.stale = true, true }

// change is a set of consequences of an event for a cluster.
type change uint8

const (
	render   change = 1 << iota // the next publication has to render the cluster
	announce                    // the channel's state may be announced before it is published
	grown                       // a publication is due because one more endpoint is READY; nothing else changed
	publish                     // a publication is due
	urgent                      // the publication must not be delayed
	wake                        // waiting RPCs must pick again, since a child policy has a new picker
)

// An outbox collects actions that lower layers defer to the end of an event: see
// publisher.settle.
type outbox struct {
	// closing shuts down the connections without an endpoint, once no published snapshot uses
	// them.
	closing []func()
	// unused releases counters, once no published snapshot uses them. It needs the mutex.
	unused []func()
	// repick is set when SubConns left READY since gRPC got its latest picker: RPCs that picked
	// such a SubConn wait for a new picker.
	repick  bool
	publish bool // a publication is due
	wake    bool // like the change wake, for an unknown cluster
}
