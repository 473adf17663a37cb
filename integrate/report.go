// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"github.com/xdslb/xdslb/integrate/internal/report"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// The types by which a channel describes itself. A TargetStatus is a tree of the others, and
// an Explanation has its routes and clusters for one RPC. They are plain data, for people and
// for encoding/json. The fields marked as detail are those of [Channel.Inspect] and [Explain].
type (
	TargetStatus   = report.TargetStatus
	RouteStatus    = report.RouteStatus
	RouteTarget    = report.RouteTarget
	ClusterStatus  = report.ClusterStatus
	LeafStatus     = report.LeafStatus
	PriorityStatus = report.PriorityStatus
	EndpointCounts = report.EndpointCounts
	LocalityStatus = report.LocalityStatus
	EndpointStatus = report.EndpointStatus

	DropStatus        = report.DropStatus
	HashPlace         = report.HashPlace
	HashStatus        = report.HashStatus
	FilterStatus      = report.FilterStatus
	ProbeStatus       = report.ProbeStatus
	RetryStatus       = report.RetryStatus
	SessionStatus     = report.SessionStatus
	TLSStatus         = report.TLSStatus
	UnhealthyEndpoint = report.UnhealthyEndpoint
	ZoneStatus        = report.ZoneStatus
	ZonesStatus       = report.ZonesStatus

	AdmissionStatus   = report.AdmissionStatus
	ConcurrencyStatus = report.ConcurrencyStatus
	ResourceStatus    = report.ResourceStatus
	RolloutStatus     = report.RolloutStatus
	ServerStatus      = report.ServerStatus

	Explanation    = report.Explanation
	Picks          = report.Picks
	PickedEndpoint = report.PickedEndpoint
	// Event is something that happened to a channel, or to its XdsClient.
	Event = eventlog.Event
)
