// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/resource"
)

// EventStatus is an Event of the channel, or of the XdsClient about what the channel uses.
type EventStatus struct {
	Time time.Time `json:"time"`
	// Kind is the name of an EventKind, or of an xds.EventKind.
	Kind  string    `json:"kind"`
	Count int       `json:"count,omitempty"` // if it is several like each other
	Last  time.Time `json:"last,omitzero"`   // of several

	Cluster  string `json:"cluster,omitempty"`
	Endpoint string `json:"endpoint,omitempty"` // of several the first one's
	Change   string `json:"change,omitempty"`   // such as "+2 -1 endpoints", or "priority 0 to 1"

	Type     string `json:"type,omitempty"` // of the resource
	Resource string `json:"resource,omitempty"`
	Version  string `json:"version,omitempty"`
	Server   string `json:"server,omitempty"`

	Error string `json:"error,omitempty"` // of several the last one's
}

// String returns the event on one line.
func (e EventStatus) String() string {
	var b strings.Builder
	b.WriteString(e.Time.Format("15:04:05.000 ") + e.Kind)
	endpoint, err := "endpoint", ": "
	if e.Count > 1 {
		fmt.Fprintf(&b, " ×%d until %s", e.Count, e.Last.Format("15:04:05.000"))
		endpoint, err = "first endpoint", ", the last: " // they may be of different endpoints
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

// mergeEvents joins the events of a channel and of its XdsClient by time. What the
// XdsClient has delivered is left out: the channel says what it made of it.
func mergeEvents(ours []Event, theirs []xds.Event) []EventStatus {
	var all []EventStatus
	for i := range ours {
		all = append(all, ours[i].status())
	}
	for _, ev := range theirs {
		if ev.Kind == xds.ConfigurationDelivered || ev.Kind == xds.TargetFailed {
			continue
		}
		out := EventStatus{Time: ev.Time, Kind: ev.Kind.String(), Resource: ev.Name, Version: ev.Version, Server: ev.Server, Error: ev.Err}
		switch {
		case ev.Type < resource.NumTypes:
			out.Type = ev.Type.String()
		case ev.Name != "":
			out.Type = "DNS name"
		}
		all = append(all, out)
	}
	slices.SortStableFunc(all, func(a, b EventStatus) int { return a.Time.Compare(b.Time) })
	return all
}

// status returns the event as plain data.
func (e *Event) status() EventStatus {
	out := EventStatus{Time: e.Time, Kind: e.Kind.String(), Cluster: e.Cluster, Error: errorText(e.Err)}
	if e.Count > 1 {
		out.Count, out.Last = e.Count, e.Last
	}
	if e.Endpoint.IsValid() {
		out.Endpoint = e.Endpoint.String()
	}
	switch e.Kind {
	case ConfigurationApplied:
		out.Change = e.Changes.String()
	case PriorityChanged:
		out.Change = fmt.Sprintf("priority %s to %s", priorityName(e.From), priorityName(e.To))
	}
	return out
}

func priorityName(i int) string {
	if i < 0 {
		return "none"
	}
	return fmt.Sprint(i)
}
