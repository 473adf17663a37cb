// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package picker provides the selection of the endpoint for each RPC, from the configuration of
// an xDS control plane. It is the hot path and does not depend on gRPC or protobuf: its inputs
// are configuration and connection states, its outputs are indexes.
//
// # Problem
//
// xDS places a dozen decisions between an RPC and its connection: the route, one of its
// clusters, whether to drop the RPC, whether the circuit breaker is open, the priority, the
// locality, the endpoint. Then the RPC is counted in three places. Layers that make these
// decisions one after the other, independently, take about twenty allocations and a microsecond
// per RPC. Yet nearly all decisions depend only on the configuration and on the set of READY
// connections, which change a million times less often than RPCs are made.
//
// # Structure
//
// So decisions are made when these inputs change. Build compiles a Config and the states of its
// clusters into a Snapshot, an immutable tree of slices. A pick walks it without locks,
// allocations, maps and interface calls:
//
//	Snapshot ── routeTable    path ─→ radix tree ─→ candidates ─→ conditions ─→ first match
//	   │                      one of its clusters is drawn: Alias
//	   └─ cluster             usable? ─→ group: Alias ─→ drop? ─→ breaker?
//	        └─ group          position = issued++ ─→ edf.Schedule.At(position) ─→ index
//
// A group is the set of endpoints from which a policy picks: the endpoints of a locality, or,
// if the policy is Flat, of the whole priority. Several policies share a rule, the
// implementation of the pick:
//
//	inSequence       EDF, round robin, client-side WRR   by configured, equal, reported weights
//	                 pick first                          the sequence of one endpoint
//	byHash           ring hash, Maglev                   hash ─→ placement ─→ view ─→ index
//	byLeastRequest   least request                       the least loaded of a few random ones
//	                 random                              of one random endpoint
//	byLeastLatency   least latency                       the cheaper of two random ones
//	byProbes         Prequal                             the best by the answers to probes
//	byZones          both, zone-aware                    the same, in another zone if its own is slow
//	byDelegate       custom policies                     the caller's balancer picks
//
// A hashed RPC may have to wait for the endpoint to which its hash belongs. So its endpoint is
// looked up before the drops (T-DROP-4) and counted after the breaker.
//
// Data that RPCs write is not part of a snapshot; successive snapshots share it. The caller
// owns the first four types. Build creates the last one, and the window of a sequence, and
// passes them on to later snapshots:
//
//	Breaker        RPCs in flight of a (cluster, service) pair, for the process
//	Load           RPCs issued, succeeded, failed of a locality, for LRS and EDF
//	Counter        RPCs dropped by a category, rejected by the breaker
//	EndpointState  the counters above to update at the end of an RPC; RPCs in flight, if
//	               the policy compares them, or their timing; the weight that the endpoint
//	               reports
//	ProbePool      the loads that the endpoints of a group reported, and how often each
//	               report was used
//
// A ClusterLoad has the counters that LRS reports. The caller selects the active priority
// between builds, since that depends on timers.
//
// # Files
//
//	config.go       the configuration of the control plane: Config, clusters, routes, policies
//	policies.go     the kinds of policies, and the table of their properties
//	state.go        the state maintained by the caller: ClusterState, EndpointState
//	build.go        Build: compiles both to a Snapshot; group.go compiles endpoints, and
//	                reuse.go reuses unchanged groups; env.go describes the channel
//	snapshot.go     the pick
//	routetable.go   from an RPC to its route; pathindex.go is the radix tree
//	sequence.go     groups in EDF order; weights.go has their weights
//	hashing.go      groups by hash; placement.go has their rings and tables, fadein.go their slow start
//	leastrequest.go groups by load; sampler.go draws from their endpoints
//	leastlatency.go groups by latency; timing.go measures it with clock.go
//	zones.go        zone-aware routing: shares of localities
//	prequal.go      groups by probes; probepool.go has the answers of endpoints
//	counters.go     counters that RPCs write; clusterload.go keeps them for LRS
//	breaker.go      the circuit breaker
//	contention.go   when counters have stripes: loadstripes.go, breakerstripes.go
//	proc_unsafe.go  the number of the processor, or its absence in proc_safe.go
//	alias.go        weighted random choice; draw.go has the other random decisions
//	subset.go       random subsetting, before endpoints connect
//	destinations.go the clusters to which the RPCs of a route go
//	tls.go          the control plane's connection security (A29), for the caller
//	explain.go      the results of picks as probabilities; explainhash.go by hash
//	explainroute.go and the routes that RPCs take
//	invariants.go   checks of Build under the build tag invariants
//
// # Cost
//
// An RPC in sequence, with circuit breaker and load reports, costs four atomic writes; other
// policies need more:
//
//	breaker.taken + 1        Pick: the limit applies to RPCs of all channels of the process
//	load.issued + 1          Pick: position in the EDF sequence and LRS count in one
//	breaker.taken − 1        Finish
//	load.counts[result] + 1  Finish: LRS reports failed RPCs separately
//
// The second addition serves two purposes. LRS also reports the RPCs in progress, which are the
// issued minus the done ones. No other two can be merged: the breaker's count is shared by channels
// and decreases; a position belongs to one sequence and only grows. Without load reports the fourth
// addition is saved, and the second as well for policies without a position. A flat group of
// several localities has its own position, which is a fifth addition. Policies that compare RPCs in
// flight need one more in Pick and one in Finish; least latency needs one in Pick, two in Finish
// and two readings of a clock. A dropped RPC increments the counter of its category. An RPC
// rejected by the breaker increments the counter of rejections. If the breaker has no limit and
// nothing else needs its count (Leaf.CountsRPCs), the first and third additions are saved. An RPC
// that has to wait leaves no trace, since it will be picked again (T-DROP-4).
//
// The caller provides the random word, and only if Snapshot.NeedsRandom. All decisions of a
// pick are derived from this one word: the locality is drawn with the word itself, and each
// other decision mixes it in its own way. The decisions are independent (TestDrawIndependent).
// A route of 0 % never matches and a route of 100 % always does, exactly.
//
// BenchmarkPickFinish compares all this with a plain round robin. BenchmarkPolicy measures each
// policy: with 3 localities of 10 endpoints 38 ns in sequence, 26 if flat, 50 to 65 by hash, 45
// to 54 by least request, and 10 more by least latency. BenchmarkPickHash measures hashing
// while endpoints are down, and BenchmarkMatch measures routes: a hundred methods with a route
// each take less than one and a half times as long as three.
//
// # Contention
//
// A cache line that several processors write moves between them. That takes 55 to 75 ns
// on the machine of bench/README.md (BenchmarkContended with the build tag purego: 222 to 305 ns
// for an RPC with four transfers), and only one transfer of a line can be under way. So the Breaker and the Load
// are striped while several processors use them at the same time (contention.go): each P then
// writes lines of its own. Lines that a pick and its end write:
//
//	                           one processor              striped
//	Breaker, of the process    1 line, twice              the P's stripe, twice; the shared line if the
//	                                                      stripe is empty or full
//	Load, of the channel       1 line, twice              the P's stripe, twice; the shared line once in
//	and locality                                          16 picks, for 16 positions
//	cluster, flat group        1 line, once               as Load
//	EndpointState              1 line, twice, with policies that count RPCs in flight, in both modes
//
// By policy:
//
//   - In sequence (EDF, round robin, client-side WRR): the position must be unique, so processors
//     take batches of positions. Picks of different processors are out of order by a batch, and
//     shares are exact.
//   - Least request, and rings with bounded loads: RPCs in flight of each endpoint are compared,
//     so they are shared by all processors. They are spread over the endpoints: with n endpoints,
//     a line is written in 2 of n RPCs. A sum over stripes would cost each sample a read of all of
//     them.
//   - Rings with bounded loads: each pick also compares the total in flight, so the breaker is
//     never striped, and its line is shared.
//   - Least latency and Prequal: the timing of each endpoint is shared like RPCs in flight. The
//     mean over the endpoints (peers) and the answers of a ProbePool are shared by the cluster,
//     since each pick compares with them.
//   - Counters of drops and rejections are shared: the RPC ends anyway.
//
// Model: an RPC takes 30 µs of CPU in gRPC, and a transfer s = 75 ns. One shared line that is
// written twice has a use of 2s times the rate; near 1 all picks wait. A stripe that keeps up to K
// slots needs the shared line for 1 of K+1 writes if RPCs begin and end on processors at random,
// and never if they end where they began. K is at most 32 and a quarter of the limit divided by the
// processors; shown for a limit that permits 32.
//
//	processors  RPC/s      Breaker: one word, striped   Load: one word, striped
//	        16  0.5 M            8 %       0.2 %              8 %       0.2 %
//	        64  2.1 M           32 %       1.0 %             32 %       1.0 %
//	       128  4.3 M           64 %       2.0 %             64 %       2.0 %
//
// The default limit of 1024 RPCs permits K = 16, 4 and 2 for these. There are no stripes while more
// than half of the limit is in use, and none with the build tag purego.
//
// # Building
//
// Build reuses the unchanged parts of the previous snapshot: clusters by their version; in a
// changed cluster the localities by their version, if the caller sets it, applying changed
// weights (reuse.go), otherwise sequences with the same weights, and rings with the same keys
// and weights; the routes if they are the same slice. A sequence continues when weights change.
// Its position is a count of RPCs and needs no handover: picks may continue from the old
// snapshot while the new one is published, and neither repeats picks of the other.
//
// A cluster that cannot be compiled fails alone (Snapshot.ClusterErr). Weights that change with
// time, during slow start or by reports, take effect with the next build. The caller requests
// it by changing the cluster's version.
//
// # Responsibilities of the caller
//
// The caller handles everything that takes time: connecting, selecting the priority (RingState
// has the rule for policies that hash), shuffling for pick first, the timers of slow start and
// of reports, outlier detection (EndpointState.Ejected). Subsetting decides which endpoints are
// connected at all, so the caller applies it before Build (Priority.Subset). The package starts
// no goroutine; the clock of least latency uses a timer while it is read.
//
// # Rejected designs
//
// A tree of pickers, one for each layer, each with a Pick method, is easier to extend. But the
// compiler cannot see through an interface call for each layer, and each layer that needs the
// end of an RPC has to wrap a closure. Here a new policy is a row in policies.go and a file,
// and rarely a case in PickCluster.
//
// Stripes for all counters at all times make an RPC on a single processor slower by a quarter.
// Positions in the snapshot would lose the picks made while the next snapshot is built, and restart
// the sequence with it. One word per cluster with both position and RPCs in flight would save an
// addition, but the channels of a process share the breaker and must not share the sequence.
//
// # How to add a policy
//
// Try a policy out of tree first: clusters name a balancer of gRPC's registry by a TypedStruct
// (A52), and integrate.EndpointInfoOf has the EDS data of its endpoints
// (integrate/examples/custom/policy.go). lbpolicy.Registry.With and integrate.Config.Policies
// convert other messages. A built-in policy needs:
//
//  1. Kind: a constant of PolicyKind, and its row of PolicyTraits, which all other code reads:
//     names, check of parameters, use of weights, what it connects, counts and times. Parameters
//     are in Policy.
//  2. Its file in picker: a function that compiles its groups. A policy that does not pick by a
//     schedule needs a rule and a case in Snapshot.PickCluster; invariants.go checks the result.
//  3. Its converter in xds/lbpolicy/endpoint.go, and in balancer.standalonePolicies for channels
//     without xDS.
//  4. Tests: an oracle as in oracle_test.go, the random model
//     (integrate/internal/balancer/modeltest/policies_test.go) and the arena's arena.Policies.
//     TestTraits compares the row with what a cluster of two endpoints does.
//  5. Its documentation: integrate/docs/policies.md.
//
// # How to add a route condition
//
//  1. resource.decoder.match decodes and validates it into Route.
//  2. routeTable.compile compiles it, clears unconditional, and sets routeTable.random if it
//     draws. routeTable.matches checks it, and Snapshot.ExplainRoutes explains it.
//  3. methodconfig.scopeOf excludes it from gRPC's service config. rpc.makePlans sets
//     Plans.byHeader if it depends on headers, so that the first pick matches again (D13), and
//     Plans.drawn if it draws.
//  4. The oracles are in routetable_test.go and fuzz/routes_test.go.
//
// # Sources
//
// Routes: gRFC A28, A31, A36, A63. Breaker: A32. Localities, drops, load reports: A27, A56.
// EDF: A34 (draft), package edf. Hashing: A42, A61, A76, A113, package ringhash, Envoy's
// hash_balance_factor. Least request: A48. Client-side WRR: A58. Pick first: A62. Custom
// policies: A52. Subsetting: A68. Outlier detection: A50. Slow start, zone-aware routing: Envoy.
// Ids such as T-RC-3 and D9a are explained in integrate/docs/requirements.tsv and ARCHITECTURE.md.
package picker
