// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package lrs tells a control plane how much load its clients send where: the
// client side of the Load Reporting Service, v3 (A27-LRS-1).
//
// # Problem
//
// A control plane that asks for it (a cluster's lrs_server, A27-CL-5) is to be
// told every few seconds, for each cluster and locality, how many RPCs began,
// ended and are in progress, and how many were dropped (A27-LRS-2, A27-LRS-4).
// That must cost the RPCs nothing beyond the counters they keep anyway (D9a),
// survive broken streams, servers that change their mind or answer nonsense, and
// clusters that come and go, and it must never hold anybody up.
//
// # Structure
//
//	channel --Report--> picker.ClusterLoad <--adds-- RPCs
//	                            |
//	        Reporter: one goroutine reads, subtracts what was sent before
//	                            |
//	server <--LoadStatsRequest--+--LoadStatsResponse: how often, which clusters
//
// A [Reporter] belongs to one server. Each [Reporter.Report] adds a source: a
// picker.ClusterLoad of its own, so that channels never share a cache line, whose
// counts only ever grow. The reporter remembers what it sent of each counter,
// and sends the difference, summed over the sources of the same cluster and EDS
// service. Nothing is ever reset, so nothing is lost between reading and
// resetting; and a report that could not be sent is simply not remembered, so the
// next stream says it again, over the interval that it was really measured in.
//
// There is a goroutine and a stream only while there is a source; without
// load reports configured there is neither (A27-CL-6). A second goroutine
// receives. A source that has been stopped is reported for the last time, and
// then forgotten; but as long as there are others it stays until its last RPC has
// ended. So that a channel with a few RPCs and a short life is reported too, a new
// stream is given half a second to be opened and answered before it ends.
//
// # What the server says
//
// The server may send any number of responses; each replaces the last (T-LRS-2).
// The interval counts from the last report, so that a chatty server cannot put
// the next one off for ever, and is at least one second (T-LRS-1). Only clusters
// that the server names are reported, unless it asks for all. The counts of the
// others go on, and are reported when it asks.
//
// # What is reported
//
// Of a locality: requests issued, succeeded and failed since the last report, and
// those in progress now (T-LRS-3). An RPC that was picked for a connection which
// turns out to be gone was not issued, which may become known too late; the next
// reports then say that much less. Of a cluster: drops by category, and in total,
// which includes what the circuit breaker refused. A cluster or locality with
// nothing to say is left out. The ORCA metrics that the cluster's configuration
// names are added up by locality (A85). Per-endpoint counts are not reported.
//
// # Why not the alternatives
//
// Counters that are read and reset in one go (atomic swaps) need no memory of
// what was sent, but lose a report together with its stream, and turn the issued
// count, which is the position in the EDF sequence, backwards. Counters shared
// between channels save a summation every few seconds at the price of a contended
// cache line for every RPC.
//
// # Cost
//
// A report is O(localities and drop categories of all sources) and allocates as
// much (BenchmarkCollect: 29 µs for ten localities). Memory is bounded while a
// server is away and clusters come and go: no more than 256 stopped sources wait
// to be reported. What others counted is added to their cluster if it is still in
// use or waited for, and lost if not.
//
// # Caveats
//
// LRS has no acknowledgments. What was handed to the transport counts as sent,
// and is lost if the connection breaks before it arrives.
//
// # Sources
//
// gRFC A27; envoy/service/load_stats/v3/lrs.proto; envoy/config/endpoint/v3/
// load_report.proto.
package lrs
