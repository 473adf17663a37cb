// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventlog provides records of the events of channels and XdsClients: as the latest
// events of a Journal, and as lines of a Log. Packages xds and integrate use it; programs do
// not.
//
// A [Log] writes lines to a [log/slog.Logger] on a goroutine of its own, so neither a slow
// Logger nor one that calls back into its client delays anything. Repeated lines are
// suppressed, and so are similar ones above a limit, since thousands of resources or clusters
// can fail at once. The next line that is written has the number of suppressed ones.
//
// A [Journal] is a ring of the latest events. Repeated events are merged into one with a count.
package eventlog

import (
	"fmt"
	"strings"
	"time"
)

// Kind is the kind of an Event. The packages that record events define further kinds.
type Kind string

// The kinds of events of a channel.
const (
	ConfigurationApplied Kind = "ConfigurationApplied" // a configuration of the target took effect
	TargetFailed         Kind = "TargetFailed"         // the target cannot be served
	EndpointEjected      Kind = "EndpointEjected"      // by outlier detection (A50)
	EndpointReturned     Kind = "EndpointReturned"     // an ejection ended
	ConnectionLost       Kind = "ConnectionLost"       // an endpoint left READY
	ConnectionFailed     Kind = "ConnectionFailed"     // an attempt to connect to an endpoint failed
)

// ConfigurationDelivered is a kind of event of an XdsClient. TargetFailed is also recorded if it
// gives its Watchers an error instead of a configuration.
const (
	ConfigurationDelivered Kind = "ConfigurationDelivered" // Watchers received a configuration
)

// Event is an event of a channel or of its XdsClient. Fields that do not apply are zero.
// Repeated events are merged, with a Count.
type Event struct {
	Time  time.Time `json:"time"` // of the first
	Kind  Kind      `json:"kind"`
	Count int       `json:"count,omitempty"` // if above 1
	Last  time.Time `json:"last,omitzero"`   // if Count is above 1

	Cluster  string `json:"cluster,omitempty"`
	Endpoint string `json:"endpoint,omitempty"` // address; the first one if Count is above 1
	Change   string `json:"change,omitempty"`   // such as "+2 -1 endpoints", or "priority 0 to 1"

	Type     string `json:"type,omitempty"` // of the resource, or "DNS name"
	Resource string `json:"resource,omitempty"`
	Version  string `json:"version,omitempty"`
	Server   string `json:"server,omitempty"` // its URI

	Error string `json:"error,omitempty"` // the latest one if Count is above 1

	// Changes are the changes of a ConfigurationApplied. Change is formatted from it when the
	// event is read.
	Changes *Changes `json:"-"`
}

// String returns the event on one line, such as
//
//	15:04:05.000 Rejected Cluster "c" version "7" server "cp:443": lrs_server must be self
func (e Event) String() string {
	var b strings.Builder
	b.WriteString(e.Time.Format("15:04:05.000 ") + string(e.Kind))
	endpoint, err := "endpoint", ": "
	if e.Count > 1 {
		fmt.Fprintf(&b, " ×%d until %s", e.Count, e.Last.Format("15:04:05.000"))
		endpoint, err = "first endpoint", ", the last: " // the events may be of different endpoints
	}
	for _, f := range []struct{ name, value string }{
		{"cluster", e.Cluster}, {endpoint, e.Endpoint}, {e.Type, e.Resource}, {"version", e.Version}, {"server", e.Server},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, " %s %q", f.name, f.value)
		}
	}
	if e.Change != "" {
		b.WriteString(": " + e.Change)
	}
	if e.Error != "" {
		b.WriteString(err + e.Error)
	}
	return b.String()
}

// maxText is the maximum length of texts in bytes that Cut leaves unchanged.
const maxText = 1 << 10

// Cut truncates an untrusted text to about 1 KiB. It does not retain a longer text.
func Cut(s string) string { return CutTo(s, maxText) }

// CutTo is Cut with a different limit.
func CutTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Limits of a Journal.
const (
	size        = 128         // of the ring
	mergeBack   = 8           // number of recent events that are searched for a repeat
	mergePeriod = time.Minute // after the first of the merged events
)

// A Journal has the latest events, up to 128. The zero value is ready to use; it takes no
// memory until the first event. The caller's lock guards it. Journals may share events, which
// are not changed after they have been added.
type Journal struct {
	ring  []*Event
	added int
}

// Add adds a current event, or merges it into a recent event that it repeats. Only frequent and
// minor events are merged: events of connections and ejections, and configurations that change
// endpoints only. Events are not merged across an event of another kind.
//
// Add reports whether e itself was added. If so, the caller may complete it immediately.
func (j *Journal) Add(e *Event) bool {
	if j.merge(e) {
		return false
	}
	if len(j.ring) < size {
		j.ring = append(j.ring, e)
	} else {
		j.ring[j.added%size] = e
	}
	j.added++
	return true
}

// merge merges e into a recent event if it repeats that event, and reports whether it did.
func (j *Journal) merge(e *Event) bool {
	if !e.mergeable() {
		return false
	}
	for i := j.added - 1; i >= max(j.added-min(mergeBack, len(j.ring)), 0); i-- {
		last := j.ring[i%size]
		if !last.mergeable() {
			return false
		}
		if last.Kind != e.Kind || last.Cluster != e.Cluster {
			continue
		}
		if e.Time.Sub(last.Time) >= mergePeriod {
			return false
		}
		merged := *last
		merged.Count = max(last.Count, 1) + 1
		merged.Last, merged.Error = e.Time, e.Error
		if e.Changes != nil {
			merged.Changes = last.Changes.plus(e.Changes)
		}
		j.ring[i%size] = &merged
		return true
	}
	return false
}

func (e *Event) mergeable() bool {
	switch e.Kind {
	case ConnectionLost, ConnectionFailed, EndpointEjected, EndpointReturned:
		return true
	case ConfigurationApplied:
		return e.Changes != nil && e.Changes.endpointsOnly()
	}
	return false
}

// Events returns copies of the events, oldest first.
func (j *Journal) Events() []Event {
	events := make([]Event, len(j.ring))
	for i := range events {
		e := *j.ring[(j.added+i)%len(j.ring)]
		if e.Changes != nil {
			e.Change, e.Changes = e.Changes.String(), nil
		}
		events[i] = e
	}
	return events
}

// Changes counts how a configuration differs from the previous one. An endpoint that moves
// to another locality or priority is neither added nor removed.
type Changes struct {
	Routes                            bool // of the virtual host, or filters of the listener
	ClustersAdded, ClustersRemoved    int
	EndpointsAdded, EndpointsRemoved  int
	Weights                           int // endpoints with a changed weight
	Health                            int // endpoints that started or stopped draining
	Localities                        int // leaves with changed localities or locality weights
	Priorities, Policies, TLS, Limits int // leaves with changed priorities, policy, TLS, or limits
}

// endpointsOnly reports whether nothing changed above the endpoints.
func (c *Changes) endpointsOnly() bool {
	only := Changes{EndpointsAdded: c.EndpointsAdded, EndpointsRemoved: c.EndpointsRemoved, Weights: c.Weights, Health: c.Health, Localities: c.Localities}
	return *c == only
}

// plus returns the sum of two changes of endpoints only.
func (c *Changes) plus(later *Changes) *Changes {
	return &Changes{
		EndpointsAdded:   c.EndpointsAdded + later.EndpointsAdded,
		EndpointsRemoved: c.EndpointsRemoved + later.EndpointsRemoved,
		Weights:          c.Weights + later.Weights,
		Health:           c.Health + later.Health,
		Localities:       c.Localities + later.Localities,
	}
}

// String returns the changes as a list, such as "routes, +2 -1 endpoints, 3 weights";
// "nothing" if it is empty.
func (c Changes) String() string {
	var list []string
	plusMinus := func(added, removed int, what string) {
		switch {
		case added > 0 && removed > 0:
			list = append(list, fmt.Sprintf("+%d -%d %s", added, removed, what))
		case added > 0:
			list = append(list, fmt.Sprintf("+%d %s", added, what))
		case removed > 0:
			list = append(list, fmt.Sprintf("-%d %s", removed, what))
		}
	}
	if c.Routes {
		list = append(list, "routes")
	}
	plusMinus(c.ClustersAdded, c.ClustersRemoved, "clusters")
	plusMinus(c.EndpointsAdded, c.EndpointsRemoved, "endpoints")
	for _, n := range []struct {
		count int
		what  string
	}{
		{c.Weights, "weights"}, {c.Health, "draining or not"}, {c.Localities, "localities"}, {c.Priorities, "priorities"},
		{c.Policies, "policies"}, {c.TLS, "TLS"}, {c.Limits, "drops or limits"},
	} {
		if n.count > 0 {
			list = append(list, fmt.Sprintf("%d %s", n.count, n.what))
		}
	}
	if list == nil {
		return "nothing"
	}
	return strings.Join(list, ", ")
}
