// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package probe provides the server side of the policy xdslb_prequal: it counts the RPCs that a
// gRPC server has in flight, records their latencies, and answers the probes of clients.
//
//	load := probe.NewLoad()
//	s := grpc.NewServer(load.ServerOption())
//	probe.Register(s, load)
//
// # Problem
//
// A client that sends few RPCs to each of many servers does not know their queues: its own RPCs
// in flight are a small part of a server's load, and the latency of an RPC reflects the state
// of the server when the RPC arrived. A server knows its queue at no cost. So clients probe a
// few servers ahead of their RPCs, and send RPCs to the servers with the best answers (Prequal:
// Wydrowski et al., "Load is not what you should balance", NSDI 2024).
//
// # Reports
//
// A report has the number of unary RPCs in flight, and the latency of RPCs that found as many
// in flight: an average of about the last ten, of the nearest number for which an RPC has ended
// in the last ten seconds. If no recent RPC found as many, as at a server that has just
// recovered with a cold cache, the latency for fewer RPCs is scaled up: the server knows the
// latency of an RPC that did not wait, and how many would wait now. Latency alone would lag
// behind by the duration of the RPCs, and the number in flight alone does not show how fast
// they are processed.
//
// Failed RPCs do not count in the latency, or failing fast would look like being fast. Instead,
// a report has the fraction of the RPCs of the last two seconds that failed, and clients divide
// by the fraction of successes. RPCs that the client canceled, or whose deadline expired, do
// not count as failed.
//
// Streams are not counted, since a stream that waits for events all day is no load, nor are
// probes, health checks and reflection.
//
// # Wire format
//
// A probe is a unary RPC with an empty request, so it needs neither a connection nor a port of
// its own. Any server that answers it can participate:
//
//	syntax = "proto3";
//	package xdslb.probe.v1;
//
//	service Probe {
//	  rpc Load(google.protobuf.Empty) returns (Report);
//	}
//
//	message Report {
//	  uint32 in_flight = 1;
//	  uint64 latency_ns = 2;  // 0 is not known
//	  uint32 failing_ppm = 3; // of the RPCs of late, in millionths
//	  double weight = 4;      // 0 is 1
//	  bool going_away = 5;
//	}
//
// Probes reveal how busy a server is. Every client that may send RPCs to the server may probe
// it, unless an interceptor of the server rejects the method [Method].
//
// # Cost
//
// An RPC costs the server one small allocation and a few atomic operations, in addition to
// gRPC's cost of a stats handler. A probe costs as much as a small RPC, since gRPC's transport
// does the same work for both; this package accounts for a few tenths of a percent of that
// (BenchmarkReport). Therefore clients limit their probes (probesPerRpc), and the policy is for
// RPCs that take milliseconds: three probes are half a percent of an RPC that needs 15 ms of a
// processor.
//
// No way of probing over gRPC is cheap compared with a small RPC. Processor time of a server on
// a busy machine of two processors, 32 callers, the minimum of three runs of
// BenchmarkServerCPU:
//
//	RPC that echoes 32 bytes, no Load        22.5 µs
//	the same with a Load                     26.1
//	probe                                    25.3
//	RPC that sends its load in its trailer   35.4    9.3 more
//	message on an open stream, and back       5.6    a quarter of a small RPC
//
// # Rejected designs
//
// Out-of-band ORCA reports (A51) arrive at most once in 30 s, by grpc-go's default, and
// periodically instead of on demand. Trailers of RPCs contain the load of picked servers only,
// and cost more than it seems: their values are new each time, so they are never in HPACK's
// table, and all clients of the server receive them. A stream of probes for each connection
// would cost a quarter of the probes. That is still far above a twentieth of a small RPC, as
// two frames have to be read and written regardless of their contents. It would also block
// GracefulStop, and need a protocol in place of a unary RPC's deadlines, statuses and
// cancelation.
package probe
