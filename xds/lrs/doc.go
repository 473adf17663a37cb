// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package lrs provides load reporting to a control plane: the client side of the Load Reporting
// Service, v3 (A27-LRS-1).
//
// # Problem
//
// A control plane that requests load reports (a cluster's lrs_server, A27-CL-5) receives every
// few seconds, for each cluster and locality, the number of RPCs started, finished and in
// progress, and the number of dropped RPCs (A27-LRS-2, A27-LRS-4). For RPCs this must not cost
// more than the counters that exist anyway (D9a). It must handle broken streams, servers that
// change their requests or send invalid responses, and clusters that are added and removed, and
// it must never block.
//
// # Structure
//
//	channel --Report--> picker.ClusterLoad <--adds-- RPCs
//	                            |
//	        Reporter: one goroutine reads, subtracts what was sent before
//	                            |
//	server <--LoadStatsRequest--+--LoadStatsResponse: how often, which clusters
//
// A [Reporter] belongs to one server. Each [Reporter.Report] adds a source: its own
// picker.ClusterLoad, so that channels never share a cache line, with counts that only grow.
// The reporter stores the sent value of each counter, and sends the difference, summed over the
// sources of the same cluster and EDS service. Counters are never reset, so no counts are lost
// between reading and resetting. A report that could not be sent is simply not recorded as
// sent, so the next stream sends it again, with its actual interval.
//
// There are a goroutine and a stream only while there is a source; without configured load
// reports there is neither (A27-CL-6). A second goroutine receives. A stopped source is
// reported a last time and then removed; but while there are other sources it stays until its
// last RPC has ended. So that a channel with a few RPCs and a short life is reported too, a new
// stream has half a second to be opened and answered before it ends.
//
// # Requests of the server
//
// The server may send any number of responses; each replaces the previous one (T-LRS-2). The
// interval starts at the last report, so that frequent responses cannot postpone the next
// report forever, and is at least one second (T-LRS-1). Only clusters that the server names are
// reported, unless it requests all. The counts of the other clusters continue, and are reported
// on request.
//
// # Contents of reports
//
// For a locality: requests issued, succeeded and failed since the last report, and requests
// currently in progress (T-LRS-3). An RPC that was picked for a connection which turns out to
// be closed was not issued, which may become known too late; the next reports are then reduced
// accordingly. For a cluster: drops by category, and in total, including RPCs rejected by the
// circuit breaker. A cluster or locality without counts is omitted. The ORCA metrics named by
// the cluster's configuration are summed by locality (A85), up to 1000 names of 256 bytes and 64 KiB
// in all: backends choose the names. Per-endpoint counts are not reported.
//
// A report of more than about 1 MiB is divided into several messages, since gRPC servers accept
// 4 MiB by default and end the stream otherwise. A cluster is in one message if it fits; if not, its
// localities are divided, and each message has the whole interval.
//
// # Rejected designs
//
// Counters that are read and reset atomically need no memory of sent values, but lose a report
// together with its stream, and decrease the issued count, which is the position in the EDF
// sequence. Counters shared between channels save a summation every few seconds at the price of
// a contended cache line for every RPC.
//
// # Cost
//
// A report is O(localities and drop categories of all sources) and allocates as much
// (BenchmarkCollect: 29 µs for ten localities). Memory is bounded while a server is unreachable
// and clusters are added and removed: at most 256 stopped sources wait to be reported. The
// counts of further sources are added to their cluster if it is still in use or pending, and
// otherwise lost.
//
// # Caveats
//
// LRS has no acknowledgments. Reports passed to the transport count as sent, and are lost if
// the connection breaks before they arrive, or if the server refuses them. Options.Ended reports
// that a stream has ended. The counts are not sent again: the server may have added them already,
// and a message that it refuses once would be refused again.
//
// # Sources
//
// gRFC A27; envoy/service/load_stats/v3/lrs.proto; envoy/config/endpoint/v3/load_report.proto.
package lrs
