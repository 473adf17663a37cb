// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package picker chooses the endpoint of each RPC by what an xDS control plane has
// configured. It is the hot path and knows neither gRPC nor protobuf: configuration and
// connection states go in, indexes come out.
//
// # Problem
//
// Between an RPC and its connection xDS puts a dozen decisions: which route, which of its
// clusters, whether to drop, whether the circuit breaker is open, which priority, which
// locality, which endpoint. Then the RPC is counted, three times over. Layers that decide
// one after the other, and do not know of each other, take about twenty allocations and a
// microsecond for each RPC. Yet nearly all of it depends only on the configuration and on
// which connections are READY, and these change a million times less often than RPCs are
// made.
//
// # Structure
//
// So decisions are made when these change. Build compiles a Config and the states of its
// clusters into a Snapshot, an immutable tree of slices that a pick walks without a lock,
// an allocation, a map or an interface:
//
//	Snapshot ── routeTable    path ─→ radix tree ─→ candidates ─→ conditions ─→ first match
//	   │                      one of its clusters is drawn: Alias
//	   └─ cluster             usable? ─→ group: Alias ─→ drop? ─→ breaker?
//	        └─ group          position = issued++ ─→ edf.Schedule.At(position) ─→ index
//
// A group is the set of endpoints that a policy picks from: those of a locality, or, if the
// policy is Flat, those of the whole priority. Several policies share a way to pick (rule):
//
//	inSequence       PolicyEDF, PolicyRoundRobin, PolicyClientWRR   by configured, equal, reported weights
//	                 PolicyPickFirst                                the sequence of one endpoint
//	byHash           PolicyRingHash, PolicyMaglev                   hash ─→ placement ─→ view ─→ index
//	byLeastRequest   PolicyLeastRequest                             the least loaded of a few random ones
//	byLeastLatency   PolicyLeastLatency                             where an RPC costs less, of two random ones
//	byProbes         PolicyPrequal                                  the best by what endpoints said
//	byDelegate       PolicyCustom                                   the caller's balancer picks
//
// An RPC that is hashed may have to wait for the one endpoint that it belongs to, so its
// endpoint is looked up before the drops (T-DROP-4) and counted after the breaker.
//
// What RPCs write is not in a snapshot. Successive snapshots share it. The caller owns the
// first four; Build makes the last, and the window of a sequence, and hands them on:
//
//	Breaker        RPCs in flight of a (cluster, service) pair, for the process
//	Load           RPCs issued, succeeded, failed of a locality, for LRS and EDF
//	Counter        RPCs dropped by a category, refused by the breaker
//	EndpointState  the counters above that the end of an RPC goes to; RPCs in flight, if
//	               the policy compares them, or their Timing; the weight that the endpoint
//	               reports
//	ProbePool      what the endpoints of a group said of their load, and how often that
//	               was used
//
// A ClusterLoad has the counters that LRS reports. The caller chooses the priority in use,
// between builds, since that depends on timers.
//
// # Files
//
//	config.go       what the control plane sent: Config, clusters, routes, policies
//	state.go        what the caller knows besides: ClusterState, EndpointState
//	build.go        Build: from these to a Snapshot; group.go has the endpoints' part, and
//	                source.go what is taken over of them; env.go is the channel
//	snapshot.go     the pick
//	routetable.go   from an RPC to its route; pathindex.go is the radix tree
//	sequence.go     groups in EDF order; weights.go has their weights
//	hashing.go      groups by hash; placement.go has their rings and tables
//	leastrequest.go groups by load; sampler.go draws from their endpoints
//	leastlatency.go groups by latency; timing.go knows that of endpoints, by clock.go
//	zones.go        zone-aware routing: shares of localities; loadaware.go has those by
//	                load
//	prequal.go      groups by probes; probepool.go has what endpoints said
//	counters.go     what RPCs write; clusterload.go keeps it for LRS
//	alias.go        weighted random choice; draw.go has the other random decisions
//	subset.go       random subsetting, before endpoints connect
//	destinations.go to which clusters the RPCs of a route go
//	tls.go          what the control plane says of connections (A29), for the caller
//	explain.go      what picks would come to, as probabilities; explainhash.go by hash
//	explainroute.go and which routes RPCs take
//	invariants.go   what Build checks under the build tag invariants
//
// # Cost
//
// An RPC in sequence, with circuit breaker and load reports, costs four atomic additions;
// other policies add to that:
//
//	breaker.inFlight + 1   Pick: the limit is on RPCs of all channels of the process
//	load.issued + 1        Pick: position in the EDF sequence and LRS count in one
//	breaker.inFlight − 1   Finish
//	load.done[result] + 1  Finish: LRS tells failed RPCs from others
//
// The second does two jobs. LRS also wants the RPCs in progress, which are those issued and
// not done. No other two can be merged: the breaker's count is shared by channels and goes
// down; a position belongs to one sequence and only goes up. If nobody reports the load, the
// fourth is saved, and so is the second for policies that have no position. A flat group of
// several localities has a position of its own, which is a fifth. Policies that compare RPCs
// in flight add one in Pick and one in Finish; least latency adds one in Pick, two in Finish
// and two looks at a clock. An RPC that is dropped adds to the counter of its category; one
// that the breaker refuses adds to that, takes it back, and adds to the counter of refusals.
// One that has to wait leaves nothing behind, since it will be picked for again (T-DROP-4).
//
// The random word comes from the caller, and only if Snapshot.NeedsRandom. All decisions of
// a pick are made from the one word: the locality is drawn with the word as it is, and each
// other decision mixes it in its own way. They are independent (TestDrawIndependent). A
// route of 0 % never matches and one of 100 % always does, exactly.
//
// BenchmarkPickFinish compares all this with a plain round robin. BenchmarkPolicy has the
// cost of each policy: with 3 localities of 10 endpoints 38 ns in sequence, 26 if flat, 50 to
// 65 by hash, 45 to 54 by least request, and 10 more by least latency. BenchmarkPickHash has that of hashing while
// endpoints are down, and BenchmarkMatch that of routes: a hundred methods with a route each
// take less than one and a half times as long as three.
//
// # Building
//
// Build takes over from the previous snapshot what did not change: clusters by their
// version; in a changed cluster the localities by theirs, if the caller has any, and weights by
// what differs (source.go), else the sequences whose weights are the same, and the rings whose
// keys and weights are; the routes if they are the same slice. A sequence continues when
// weights change. Its position is a count of RPCs, so it needs no handing over: picks may
// continue from the old snapshot while the new one is published, and neither repeats what
// the other picked.
//
// A cluster that cannot be compiled fails alone (Snapshot.ClusterErr). Weights that change
// with time, during slow start or by reports, take effect with the next build. The caller
// requests it by changing the cluster's version.
//
// # What is left to the caller
//
// Everything that takes time: connecting, choosing the priority (RingState has the rule for
// policies that hash), shuffling for pick first, the timers of slow start and of reports,
// outlier detection (EndpointState.Ejected). Subsetting decides which endpoints are
// connected at all, so the caller applies it before Build (Priority.Subset). The package
// starts no goroutine; the clock of least latency has a timer while it is read.
//
// # Rejected
//
// A tree of pickers, one for each layer, each with a Pick method, is easier to extend. But
// the compiler cannot see through an interface call for each layer, and each layer that
// needs the end of an RPC has to wrap a closure. Here a new policy is a case in
// builder.group and a file, and rarely a case in PickCluster: see ARCHITECTURE.md.
//
// Sharding the counters by processor fails for lack of a cheap shard: see Counter and
// Breaker. Positions in the snapshot would lose what is picked while the next one is built,
// and restart the sequence with it. One word for each cluster with both position and RPCs in
// flight would save an addition, but the channels of a process share the breaker and must
// not share the sequence.
//
// # Sources
//
// Routes: gRFC A28, A31, A36, A63. Breaker: A32. Localities, drops, load reports: A27, A56.
// EDF: A34 (draft), package edf. Hashing: A42, A61, A76, A113, package ringhash, Envoy's
// hash_balance_factor. Least request: A48. Client-side WRR: A58. Pick first: A62. Custom
// policies: A52. Subsetting: A68. Outlier detection: A50. Slow start, zone-aware
// routing, load-aware localities: Envoy. Ids such as T-RC-3 and D9a are explained in REQUIREMENTS.md and ARCHITECTURE.md.
package picker
