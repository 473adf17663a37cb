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
//	   └─ cluster             usable? ─→ drop? ─→ breaker? ─→ locality: Alias
//	        └─ locality       ticket = issued++ ─→ edf.Schedule.At(ticket) ─→ index
//
// What RPCs write is not in the snapshot but shared by all that refer to it, and
// belongs to the caller:
//
//	Breaker        RPCs in flight of a (cluster, service) pair, for the process
//	Load           RPCs issued, succeeded, failed of a locality, for LRS and EDF
//	Counter        RPCs dropped by a category, refused by the breaker
//	EndpointState  which of these the end of an RPC goes to
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
// nobody reports the load the fourth is saved. A refused or dropped RPC leaves no
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
// robin, BenchmarkMatch that of routes: a hundred methods with a route each take
// less than one and a half times as long as three.
//
// # Building
//
// Build takes over from the previous snapshot what did not change: clusters by
// their version, of a changed cluster the localities whose weights are the same,
// the routes if they are the same slice. Sequences go on over a weight change.
// Their position, being a count of RPCs, needs no handing over: picks may go on
// from the old snapshot while the new one is published, and neither repeats what
// the other picked.
//
// # What it does not do
//
// It picks by EDF or round robin within localities (PolicyEDF, PolicyRoundRobin)
// and refuses other policies by an error of Build. It does not connect, resolve
// or time anything, and starts no goroutine.
//
// # Not done this way
//
// A tree of pickers, one for each layer, each with a Pick method, is easier to
// extend, but an interface call per layer keeps the compiler from seeing through
// any of them, and each layer that wants to know of the end of an RPC has to wrap
// a closure. Here a new policy is a case in PickCluster and a file.
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
// A27, A56. EDF: A34 (draft), package edf. Requirement ids such as T-RC-3 refer to
// the project's list.
package picker
