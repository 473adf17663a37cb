// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package picker chooses the endpoint of each RPC from what an xDS control plane
// has configured. It is the hot path and knows neither gRPC nor protobuf:
// configuration and connection states go in, indexes come out.
//
// # Problem
//
// Between an RPC and its connection xDS puts a dozen decisions: which route,
// which cluster of it, whether to drop, whether the circuit breaker is open,
// which priority, which locality, which endpoint; and then the RPC is counted,
// three times over. Made one after the other by layers that do not know of each
// other, that is some twenty allocations and a microsecond for each RPC. Yet
// nearly all of it depends only on the configuration and on which connections
// are up, which change a million times less often than RPCs are made.
//
// # Structure
//
// So it is decided when they change. Build compiles a Config and the states of
// its clusters into a Snapshot, an immutable tree of slices that a pick walks
// without a lock, an allocation, a map or an interface:
//
//	Snapshot ── routeTable    path ─→ radix tree ─→ candidates ─→ conditions ─→ first match
//	   │                      of its clusters one is drawn: Alias
//	   └─ cluster             usable? ─→ group: Alias ─→ drop? ─→ breaker?
//	        └─ group          ticket = issued++ ─→ edf.Schedule.At(ticket) ─→ index
//
// A group is what a policy picks from: the endpoints of a locality, or, if the
// policy is Flat, all of the priority. There are more policies than ways to pick:
//
//	in sequence   PolicyEDF, PolicyRoundRobin, PolicyClientWRR   weights: configured, equal, reported
//	              PolicyPickFirst                                the sequence of one endpoint
//	by hash       PolicyRingHash, PolicyMaglev                   hash ─→ placement ─→ detour ─→ index
//	by lottery    PolicyLeastRequest                             the least loaded of a few
//	by child      PolicyCustom                                   the caller's balancer
//
// An RPC that is hashed may have to wait for the one endpoint that it belongs to, so
// that is looked up before the drops (T-DROP-4) and counted after the breaker.
//
// What RPCs write is not in the snapshot but shared by all that refer to it, and
// belongs to the caller:
//
//	Breaker        RPCs in flight of a (cluster, service) pair, for the process
//	Load           RPCs issued, succeeded, failed of a locality, for LRS and EDF
//	Counter        RPCs dropped by a category, refused by the breaker
//	EndpointState  which of these the end of an RPC goes to; RPCs in flight, if
//	               the policy looks at them; what the endpoint reports itself
//
// A ClusterLoad keeps those that LRS reports. The priority in use is chosen by the
// caller, between builds, for it depends on timers.
//
// # Cost
//
// An RPC pays four atomic additions with everything on:
//
//	breaker.inFlight + 1   Pick: the limit is on RPCs of all channels of the process
//	load.issued + 1        Pick: position in the EDF sequence and LRS count in one
//	breaker.inFlight − 1   Finish
//	load.done[result] + 1  Finish: LRS tells failed RPCs from others
//
// The second does two jobs, and in progress, which LRS wants to know too, is what
// is issued and not done. No other two can be one: the breaker spans channels and
// localities and its count goes down again, and a position must only go up. If
// nobody reports the load the fourth is saved. A flat sequence of several localities
// has a count of its own, which is a fifth; so have policies that look at RPCs in
// flight, and a sixth in Finish. A refused or dropped RPC leaves no
// trace but its own counter; one that has to wait leaves none at all, since it
// will be picked for again (T-DROP-4).
//
// The random word comes from the caller, and only if Snapshot.NeedsRandom. All
// decisions of a pick are made from the one word: the locality takes it as it is
// and each of the others mixes it in its own way. They are independent
// (TestDrawIndependent), and a route of 0 % never matches and one of 100 % always
// does, exactly.
//
// BenchmarkPickFinish has the price of all this beside that of a plain round
// robin, BenchmarkPolicy that of each policy (with 3 localities of 10 endpoints 38 ns
// in sequence, 26 if flat; by hash 50 to 65, by lottery 45 to 54), BenchmarkPickHash
// that of hashing while endpoints are down, BenchmarkMatch that of routes: a hundred methods with a route each take
// less than one and a half times as long as three.
//
// # Building
//
// Build takes over from the previous snapshot what did not change: clusters by
// their version, of a changed cluster the sequences whose weights are the same and
// the rings whose keys and weights are, the routes if they are the same slice.
// Sequences go on over a weight change. Their position, being a count of RPCs, needs no handing over: picks may go on
// from the old snapshot while the new one is published, and neither repeats what
// the other picked.
//
// A cluster that cannot be compiled fails alone (Snapshot.ClusterErr). What time
// changes, the weights of slow start and of reports, takes effect with the next
// build, which its owner asks for by changing the cluster's version.
//
// # What is left to the caller
//
// Everything that takes time: connecting, the choice of the priority (RingState has
// the rule for those that hash), the shuffle of pick first, timers of slow start and
// of reports, outlier detection (EndpointState.Ejected). Subsetting, which decides
// what is connected at all, is a function of its own (Subset) and done before. It
// starts no goroutine.
//
// # Not done this way
//
// A tree of pickers, one for each layer, each with a Pick method, is easier to
// extend, but an interface call per layer keeps the compiler from seeing through
// any of them, and each layer that wants to know of the end of an RPC has to wrap
// a closure. Here a new policy is a case in builder.group and a file, and rarely one
// in PickCluster.
//
// Sharding the counters by processor is not done for want of a cheap shard: see
// Counter and Breaker. Keeping positions in the snapshot would lose what is picked
// while the next one is built, and restart the sequence with it. A state machine
// in one word per cluster, of position and RPCs in flight, would save an addition,
// but the channels of a process share the breaker and must not share the sequence.
//
// # Sources
//
// Routes: gRFC A28, A31, A36, A63. Breaker: A32. Localities, drops, load reports:
// A27, A56. EDF: A34 (draft), package edf. Hashing: A42, A61, A76, A113, package
// ringhash, Envoy's hash_balance_factor. Least request: A48. Client-side WRR: A58.
// Pick first: A62. Custom policies: A52. Subsetting: A68. Outlier detection: A50. Slow
// start: Envoy's. Requirement ids such as T-RC-3 refer to
// the project's list.
package picker
