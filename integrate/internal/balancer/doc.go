// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package balancer is the LB policy of xDS channels. It follows a target's configuration, owns
// the SubConns, and publishes the snapshots that picks read.
//
// A configuration goes from the XdsClient straight to the balancer, without JSON, attributes or
// the resolver (D7). Endpoints of the previous configuration are matched with those of the
// next, and keep their connections; one atomic store publishes the result. An RPC's path is
//
//	StablePicker.Pick -> picker.Snapshot.Pick -> a prebuilt balancer.PickResult
//
// A pick's Done is bound to the endpoint when the endpoint is created. It holds no snapshot, so
// a stream that lasts for days keeps no previous ring alive (D9).
//
// # Events
//
// Events are configurations, SubConn states, timers and calls of child policies. They enter at
// the top, take the mutex and are passed down the tree by call: Balancer, cluster, leaf,
// priority, and below these endpoints with their connections, or groups with their child
// policies. Lower layers reach the top only through the cluster's entry (balancer.go).
//
// Changes are returned in the other direction (change.go). Endpoints, connections and child
// policies mark their changes in the tally of their priority. At the end of the event
// cluster.handleMarks updates the phases of the marked priorities, chooses a priority, and returns a
// change to the balancer. publisher.settle acts on the change: it tells gRPC the channel's
// state, and publishes at once or sets a timer.
//
// Data that endpoints and connections share is below them: leafState for a leaf, channel for the
// whole balancer.
//
// # Priorities
//
// A cluster chooses a priority whenever the state of one changes. The choice is A56's
// ChoosePriority: the first priority that is READY, IDLE, or has time left to connect, with all
// priorities above it activated. It departs from A56 in one case: while the chosen priority is
// still connecting, the previous one stays in use if it is READY, or is replaced by a higher
// one that is READY. Once the chosen priority takes RPCs, the priorities below it are
// retired: their connections are kept for Options.RetireAfter.
//
// # Child policies
//
// Child policies are balancers of gRPC's registry that connect the endpoints themselves: custom
// policies (A52), and gRPC's pick_first (A62, D10). A priority has a group for each locality,
// or one for all; a group has a child, and a second one while the policy is switched. With
// pick_first the snapshot picks the one endpoint that the child has selected.
//
// # Concurrency
//
// One mutex per channel serialises all changes to the balancer. Picks do not take it, except
// for the first RPC that asks an IDLE child policy to connect.
//
// gRPC's ClientConn and SubConns are called with the mutex held, except for Shutdown and the
// registration of listeners, because gRPC calls back on its own goroutines. Child policies,
// pick_first and the resolver may call back before they return, so they are called without the
// mutex, in order, from a queue.
//
// Goroutines are started for the queue while it is not empty, one at a time; for lines of the
// log (package eventlog); for SubConns that are shut down, which waits 50 ms and may take 5 s; for an endpoint
// that an RPC asks to connect; for the last report of a load reporter; for probes; and for each
// healthWatch.
//
// Timers take the mutex and stop with the balancer. Configurations arrive on a goroutine of the
// XdsClient. Cancelling the watch does not wait for that goroutine; a closed balancer ignores
// later updates.
//
// # Cost
//
// A SubConn's state change is O(priorities). Publications are at least 1 ms apart in a storm,
// and O(endpoints of the clusters that changed), so n endpoints that become READY cost O(n). An
// update is one pass over the endpoints of the clusters that changed; localities whose lists of
// endpoints are unchanged are skipped.
//
// # Why not a tree of LB policies
//
// gRPC's own xDS is a tree of nine policies that pass pickers up and JSON down. Each level
// costs every RPC an indirection and every update a pass over all endpoints. Flattened, a pick
// is a walk over slices of one snapshot, route and cluster cannot disagree (D6), and a change
// is compared once.
//
// Sources: gRFC A27, A28, A31, A32, A33, A39, A44, A50, A51, A55, A56, A58, A60, A61, A75, A81,
// A114, A115; requirements are cited by id in the code.
package balancer
