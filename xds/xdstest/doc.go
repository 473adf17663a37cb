// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package xdstest is the other side of an xDS client, small enough to start in a
// test: a control plane that serves ADS and LRS, another one that misbehaves as
// told, and backends to send RPCs to. A [Recorder] reads the metrics of channels.
//
// # Problem
//
// What a client does with its control plane cannot be shown against a fake that
// agrees with the client's author about the protocol. The [Server] here is
// go-control-plane, which real control planes are built on, so it drops requests
// with a stale nonce (T-XDS-4), takes an empty first request for one for everything
// (T-XDS-2), and sends a CDS response in full but an EDS response with only what
// changed. grpc-go's own xDS client works with it too: one test says
// the same thing to both.
//
// # Structure
//
//	Resources --Set--> one LinearCache per type --ADS--> client
//	                                               |
//	   WaitACK, WaitNACK, Stats <-- what it answers
//	   Loads <-------------- LRS -- what it counted
//	   Backend <------------ RPCs - where they went
//
// Server.Set replaces everything that is served and sends clients what changed,
// in the order that never leaves a reference dangling. The functions Listener,
// Route, Cluster, Endpoints and so on build resources a client accepts; they
// return plain protobuf messages for tests to change further. Service builds the
// four resources of a service at once.
//
// [Scripted] is the other kind: an ADS server of its own that takes the protocol
// literally, fails the test of a client that does not, and can be made to delay,
// repeat, reorder, omit and garble responses, to cut streams, and to be out of
// reach. What a client does in spite of its server shows there; what it does
// with servers as they are shows with Server. Both hold what clients say against
// a [Checker].
//
// [Network] connects all of them in memory, for bubbles of testing/synctest, and injects the
// faults of a network.
//
// All state of a test is in the values that Start, StartScripted and
// StartBackends return. New, NewScripted and NewBackends do the same for tests, and clean up.
//
// # Why not a snapshot cache
//
// go-control-plane's SnapshotCache has one version for all resources of a type,
// so a change to one assignment sends all of them again; and when told that it
// serves ADS, it withholds a response until a request names every resource of
// the snapshot, which a client that subscribes to some never does (T-XDS-17). A
// LinearCache versions each resource by itself and answers any subset.
//
// # Cost
//
// Set encodes the resources it is given, compares them with what is served, and
// sends those bytes as they are, so a benchmark of a client in the same process
// pays for one encoding per update and one copy per stream.
//
// # Caveats
//
// Aggregated streams are served (A27-ARCH-1), of both variants: state of the world,
// and incremental (see DeltaStream), without transport security. A resource that the server does not
// have is never mentioned, so the client's timer has to find out (T-XDS-7).
package xdstest
