// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package fuzz holds the fuzz targets of the module, and nothing else.
//
// # Problem
//
// A control plane is trusted to say where requests go, not to be free of bugs. A
// client that panics on what it sends takes its service down with it, all
// replicas at once (T-XDS-19, T-SEC-2). And a decoder that is fast because it
// reads the wire itself may disagree with the slow one about what was said.
//
// # Structure
//
// The targets see packages from outside, as their users do:
//
//	bytes ── resource.Decode ── picker.Build ── Pick, Match    endpoints, cluster, listener, routes
//	bytes ── resource.Decode ── a list of rules                tls
//	bytes ── resource.Unwrap, resource.Name                    unwrap
//	JSON ─── bootstrap.Parse ── ListenerName, Node, ...        bootstrap, listenername
//	bytes ── lbpolicy.Registry.OfCluster, Convert              lbpolicy
//	bytes ── a stream ── xds.Client, lrs.Reporter              ads, delta, lrs
//	numbers ─ edf, ringhash, picker.Alias                      edf, alias, ring
//
// A target that only looks for panics finds little, so each compares with
// something slow and obvious: generated protobuf code and a list of rules for
// endpoints, rational numbers for EDF, a sorted slice for the ring, the first
// route that matches for the route table. Decoders are held to the memory that
// their documentation promises as well (see spend).
//
// Seeds are tables in the code, with the reason for each, and the resources in the
// testdata folders of the decoders, which operators sent or which are refused. The
// inputs of findings go to testdata/fuzz, where the toolchain looks for them; a
// plain go test runs all of them.
//
// # Why not next to the code
//
// A target inside a package can look at its internals, and soon depends on them.
// These stay as they are when an algorithm is replaced, which is when they are
// needed. The exception is what no caller can reach but through an RPC: package
// integrate's FuzzLoadReport.
//
// # Cost and caveats
//
// go test runs the seeds in about a second, make fuzz every target for FUZZTIME.
// Inputs are cut to sizes that keep the slow side fast; long periods, large rings
// and many endpoints are for the packages' own tests.
package fuzz
