// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
)

// An Event is something that happened to a channel, off the way of its RPCs. Events
// of one kind and cluster are one, with a Count, as far as they come within a minute
// and nothing of weight comes in between.
type Event struct {
	Time    time.Time // of the first
	Last    time.Time // of the last; Time if Count is 1
	Kind    EventKind
	Count   int
	Cluster string // that it concerns; empty for the target as a whole
	// Endpoint is the first address of the endpoint that it concerns, the first
	// of them if Count is above 1; the zero value if it concerns none.
	Endpoint netip.AddrPort
	// From and To are the priorities before and after a PriorityChanged, counted
	// over all leaves of the cluster; -1 is none.
	From, To int
	Changes  Changes // of a ConfigurationApplied: what it changed
	Err      error   // what is wrong, nil if nothing is; of the last; a long text is cut
}

// EventKind says what kind of thing an Event is.
type EventKind uint8

// The kinds of events.
const (
	ConfigurationApplied EventKind = iota // a configuration of the target came into force
	TargetFailed                          // the target cannot be served: Err
	PriorityChanged                       // a cluster uses another priority: From, To (A56)
	EndpointEjected                       // by outlier detection (A50)
	EndpointReturned                      // from an ejection
	ConnectionLost                        // an endpoint that was READY is not any more
	ConnectionFailed                      // an attempt to connect to an endpoint failed: Err
	ClusterFailed                         // RPCs of the cluster fail, since no endpoint can be picked: Err
	ClusterRecovered                      // from ClusterFailed
)

// String returns the kind's name.
func (k EventKind) String() string {
	names := [...]string{"ConfigurationApplied", "TargetFailed", "PriorityChanged", "EndpointEjected", "EndpointReturned", "ConnectionLost", "ConnectionFailed", "ClusterFailed", "ClusterRecovered"}
	if int(k) < len(names) {
		return names[k]
	}
	return "EventKind(?)"
}

// noteLocked notes an event, of endpoint e unless that is nil. It is the one place
// where those hear of it who want to: the journal, the log and the metrics.
func (b *lb) noteLocked(ev Event, e *endpoint) {
	ev.Time, ev.Count = time.Now(), 1
	ev.Last = ev.Time
	b.logEventLocked(&ev)
	b.countEvent(ev, e)
	ev.Err = cut(ev.Err)
	if b.journal.repeats(&ev) {
		return
	}
	if e != nil {
		ev.Endpoint = e.addr()
	}
	b.journal.add(&ev)
}

// maxEventText is how long the text of an event's error may be, in bytes: others choose it.
const maxEventText = 1 << 10

// cut returns an error whose text is no longer than that, but for a sign that there was more.
func cut(err error) error {
	if err == nil || len(err.Error()) <= maxEventText {
		return err
	}
	return plainError(strings.ToValidUTF8(err.Error()[:maxEventText], "") + "…")
}

// noteState notes that the connection of an endpoint was lost, or could not be made.
func (e *endpoint) noteState(s balancer.SubConnState, lost bool) {
	if !lost && s.ConnectivityState != connectivity.TransientFailure {
		return
	}
	ev := Event{Kind: ConnectionFailed, Cluster: e.loc.prio.cluster.cfg.Name, Err: s.ConnectionError}
	if lost {
		ev.Kind = ConnectionLost
	}
	e.loc.prio.cluster.lb.noteLocked(ev, e)
}

// addr returns the endpoint's first address: O(endpoints of the locality).
func (e *endpoint) addr() netip.AddrPort {
	if i := slices.Index(e.loc.endpoints, e); i >= 0 {
		return e.loc.cfg.At(i).Addr
	}
	return netip.AddrPort{} // it is in no configuration any more
}
