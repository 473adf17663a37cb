// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package xdstest provides the other side of an xDS client for tests: a control plane that
// serves ADS and LRS, backends for RPCs, and a network between them that can fail.
//
// # Problem
//
// A client's interaction with its control plane cannot be verified against a fake that shares
// the author's understanding of the protocol. The [Server] here is go-control-plane, on which
// real control planes are built, so it drops requests with a stale nonce, treats an
// empty first request as a wildcard subscription, and sends full CDS responses, but
// only changes in EDS responses. grpc-go's own xDS client works with it too: one test sends the
// same resources to both.
//
// # Structure
//
//	Resources --Set--> one LinearCache per type --ADS--> client
//	                                               |
//	   WaitACK, WaitNACK, Stats <-- its answers
//	   Loads <-------------- LRS -- its load reports
//	   Backend <------------ RPCs - its traffic
//
// Server.Set replaces all served resources and sends the changes to clients, in an order
// without dangling references. The functions Listener, Route, Cluster, Endpoints and so on
// build resources that a client accepts; they return plain protobuf messages for tests to
// change further. Service builds the four resources of a service at once.
//
// [Network] connects all of them in memory, for bubbles of testing/synctest, or by TCP, and injects
// network faults.
//
// All state of a test is in the values returned by Start and StartBackends. New and NewBackends
// are variants for tests that clean up.
//
// # Why not a snapshot cache
//
// go-control-plane's SnapshotCache has one version for all resources of a type, so a change to
// one assignment sends all of them again. When configured for ADS, it also withholds a response
// until a request names every resource of the snapshot, which a client with fewer subscriptions
// never does. A LinearCache versions each resource separately and answers any
// subset.
//
// # Cost
//
// Set encodes the given resources, compares them with the served ones, and sends the encoded
// bytes, so a benchmark of a client in the same process includes one encoding per update and
// one copy per stream.
//
// # Caveats
//
// Aggregated streams are served, of both variants: state of the world, and
// incremental, without transport security. A resource that the server does
// not have is never mentioned, so the client's timer has to detect it.
package xdstest
