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
// Changes are returned in the other direction (cluster.go). Endpoints, connections and child
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
// # One explanation
//
// Explain predicts where an RPC would go, without a pick. The kernel computes probabilities:
// Snapshot.ExplainRoutes, Snapshot.ExplainTargets and Snapshot.ExplainCluster read the compiled
// routes, groups and rings. A new rule of picking needs a case in group.explain; TestExplainPicks
// compares picks with it.
//
// The balancer adds reasons. With the mutex held, lookCluster and detail.fill read the endpoints as
// published (cluster.state) with their present states. No user code runs with the mutex held;
// Detached copies the parts of the context that picks read. ExplainWhatIf feeds a file to an
// XdsClient (Resources.DialOption) and a Simulation of the balancer. Channel.Inspect explains
// each cluster and adds the RPCs of each endpoint, counted while there are viewers (callWatch).
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
// # How waiting RPCs are woken
//
// Before the first configuration an RPC waits in the interceptor
// (integrate/internal/rpc/waiting.go), until Channel.Publish or Channel.Close.
//
// Later it waits inside gRPC, which repeats queued picks when it receives a picker. Ours never
// changes, so stablePicker.wait sets a flag and checks the published state again. A publication
// that may help (publisher.render) clears the flag and announces the same picker again
// (publisher.announce). outbox.repick covers RPCs whose picked connection left READY or was shut
// down, and publisher.refreshPicker covers RPCs that wait for a child policy's picker.
//
// # When EDS removes an endpoint
//
// reconciler.finish calls endpoint.remove. The endpoint drains, and its connection goes to
// outbox.closing. 50 ms after the next publication publisher.shutDown calls SubConn.Shutdown on a
// goroutine, and at once when the balancer is closed. gRPC closes the transport gracefully: RPCs in
// flight finish, but an RPC that has picked the SubConn and has no stream yet may hang
// (bench/grpc-go-draining.md), hence the delay. A connection that belongs to a child policy stays
// until the child releases it. An endpoint that only moved keeps its connection (conn.moveTo).
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
//
// # How to separate connections
//
//   - Over updates, localities and priorities of a cluster: connections differ by addrKey, which
//     sameAddrs and childSubConn.target compare. reconciler.finish moves endpoints. A property
//     that may change, such as the hostname, takes effect when the SubConn connects again (endpoint.renameConn).
//   - With a child policy: childSubConn.attach uses the endpoint's connection if
//     childSubConn.target reports that it is exclusive.
//   - Between clusters or channels: connections to backends are never shared.
//   - To a control plane: channels share an XdsClient if xds.Options.difference finds no
//     difference, and ADS and LRS share xds.pool.channelLocked.
//
// # How to add a timer of a cluster
//
// The timer is a *time.Timer of its owner: cluster, priority or detector. entry.after (balancer.go)
// starts it: the function runs with the mutex held, and marks its change in the tally with
// tally.note; the event then ends as any other. A timer that refreshes picks periodically is
// scheduled in publisher.render, as cluster.scheduleWeights does; a phase with a deadline is a case
// of priority.enter. cluster.close or leaf.close stops it. Timers of the channel use Runtime.After.
// A changed duration does not affect a running timer, unless the owner restarts the timer as
// leaf.await does. Explanations show the remaining time (whyUsed).
//
// # How to add an event, a log line, an error reason or a field of the status
//
//   - An event: an eventlog.Kind, and a call of recorder.record, which also decides whether it is
//     logged. Event.mergeable decides whether repeats are merged. Events of the XdsClient are in
//     xds/journal.go; integrate.mergeEvents joins both by time.
//   - A log line: recorder.write, or recorder.writeState if a later line supersedes it, with a
//     constant text and attributes. In xds it is core.logLocked (xds/core.go), in
//     integrate/internal/link/link.go WarnOnce.
//   - A reason in the log line about a failover: cluster.selectPriority has it, in the phase and
//     counts of the previous priority (priority.go), and passes it to recorder.recordPriority,
//     which writes the line, the event and the metric. Phase failed has two causes, a failure
//     (priority.observe) and a timeout (priority.onFailoverTimeout).
//   - An error reason: a constant in errors.go, exported in integrate/errors.go.
//     identity.refusal makes statuses, once per change. An error for which RPCs wait is not a
//     status: identity.failure registers its text, and rpc.failures.withInfo adds the reason.
//   - A field of the status: its type in integrate/report/cluster.go, the function of look.go
//     that fills it, and the model (integrate/internal/balancer/modeltest/status_test.go).
package balancer
