// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// locality is the live counterpart of a picker.Locality.
type locality struct {
	leaf      *common
	tally     *tally // of the priority
	id        picker.LocalityID
	cfg       picker.EndpointList
	load      *picker.Load
	observers *observers // the initial observers of endpoints
	counted   counting   // for each endpoint
	binding   *picker.Binding
	endpoints endpoints // parallel to cfg
	version   uint64    // of the endpoints and all their data in snapshots: see changed
}

// changed records a change that affects snapshots but is not part of the configuration
// (picker.LocalityState.Version):
//
//	which endpoints there are            matchLocalities, matchEndpoints, reconciler.finish
//	Connectivity, StateSince             endpoint.setState, onReady, resume, disconnect, takeOver
//	Ejected                              leaf.applyEjections, updateDetection, takeObservations
//	the weight derived from reports      priority.updateWeights, leaf.updateWRR, takeObservations
//
// Picks do not see changes that are not recorded here. TestModel compares each snapshot with a
// snapshot built from all endpoints, and so does picker under the build tag invariants.
func (l *locality) changed() {
	l.leaf.localityVersion++
	l.version = l.leaf.localityVersion
}

// endpoints implements picker.EndpointStates.
type endpoints []*endpoint

func (es endpoints) Len() int                          { return len(es) }
func (es endpoints) State(i int) *picker.EndpointState { return &es[i].EndpointState }

// usable reports whether an endpoint of the locality is not draining.
func (l *locality) usable() bool {
	return slices.ContainsFunc(l.endpoints, func(e *endpoint) bool { return !e.Draining })
}
