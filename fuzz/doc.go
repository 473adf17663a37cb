// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package fuzz provides the fuzz targets of the module.
//
// # Problem
//
// A control plane is trusted to decide where requests go, but it may have bugs. A client that
// panics on its input takes its service down, all replicas at once (T-XDS-19, T-SEC-2). And a
// decoder that is fast because it reads the wire itself may disagree with the slow one about
// the meaning of a message.
//
// # Structure
//
// The targets use packages from outside, as their users do:
//
//	bytes ── resource.Decode ── picker.Build ── Pick, Match    picks, cluster, listener, routes
//	bytes ── lbpolicy.Registry.OfCluster, Convert              lbpolicy
//	bytes ── overlay.Parse, Apply ── resource.Decode           overlay
//	bytes ── a stream ── xds.Client, lrs.Reporter              ads, delta, lrs
//	numbers ─ edf, ringhash, picker.Alias                      edf, alias, ring
//
// A target that only checks for panics finds little, so each compares with a slow and obvious
// implementation: rational numbers for EDF, a sorted slice for the ring, the first matching route
// for the route table. The memory of decoders is also checked against their documentation.
//
// Seeds are tables in the code, with the reason for each, and the resources in the testdata
// folders of the decoders, which come from operators or are rejected. The inputs of findings go
// to testdata/fuzz, where the toolchain looks for them; a plain go test runs all of them.
//
// # What is elsewhere
//
// A target of one package is next to its code, where it shares the oracle and the helpers of the
// package's tests: xds/resource (endpoints, their updates, names and TLS), xds/bootstrap, and packages
// balancer, offline and rpc of integrate.
//
// # Cost and caveats
//
// go test runs the seeds in about a second, make fuzz runs every target for FUZZTIME. Inputs
// are truncated to sizes that keep the slow side fast; long periods, large rings and many
// endpoints are covered by the packages' own tests.
package fuzz
