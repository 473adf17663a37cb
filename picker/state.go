// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

// Connectivity is an endpoint's connection state, as gRPC counts them.
type Connectivity uint8

// The connectivity states.
const (
	Idle Connectivity = iota
	Connecting
	Ready
	TransientFailure
)

// ClusterState is what a caller knows about one cluster of a Config besides
// the configuration: which priority is in use and how its endpoints are.
type ClusterState struct {
	// Version changes whenever anything else in the state, or the cluster's
	// configuration, does. Build takes a cluster over from the previous
	// snapshot when its name and Version are the same.
	Version uint64

	// Leaf and Priority are the indexes of the priority in use (A56); Leaf is
	// -1 while none is, and RPCs then fail if Failed is set, or else wait.
	Leaf, Priority int
	Failed         bool

	// Localities are those of the priority in use, in the order of the
	// configuration. If none of their endpoints is READY, RPCs wait if one of
	// them may become so, and fail otherwise (T-LOC-1); if the policy hashes,
	// that goes for the endpoint that an RPC belongs to.
	Localities []LocalityState

	// The counters are set, all of them, where Leaf is not -1.
	Breaker  *Breaker   // shared by all users of the (cluster, service) pair
	Drops    []*Counter // one for each of the leaf's drop categories
	Overload *Counter   // RPCs that the breaker refused
}

// LocalityState is the state of one locality of the priority in use. Its
// endpoints are bound to its Load and the cluster's Breaker, and count their RPCs in
// flight if the policy wants it (EndpointState.CountInFlight). Snapshots may keep the
// slice: it is not written after it was handed over.
type LocalityState struct {
	Load      *Load            // of no other locality of the priority
	Endpoints []*EndpointState // in the order of the configuration
}
