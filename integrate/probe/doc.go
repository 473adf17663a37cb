// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package probe is the servers' part of the policy xdslb_prequal: it counts the RPCs that
// a gRPC server has in flight, remembers how long they took, and answers clients that
// ask.
//
//	load := probe.NewLoad()
//	s := grpc.NewServer(load.ServerOption())
//	probe.Register(s, load)
//
// # Problem
//
// A client that sends few RPCs to each of many servers does not know their queues: its own
// RPCs in flight are a small part of what a server has to do, and how long an RPC took
// says how the server was when it came. A server knows its queue at no cost. So clients
// ask a few servers before they need them, and send RPCs where the answers are best
// (Prequal: Wydrowski et al., "Load is not what you should balance", NSDI 2024).
//
// # What a server says
//
// A [Report] has the number of unary RPCs in flight, and how long RPCs took that found
// as many: an average of about the last ten, of the nearest number for which one has ended
// in the last ten seconds. Where none of late found as many, as at a server that has just
// come back with a cold cache, the latency of fewer is taken in proportion: it knows how
// long an RPC takes that did not wait, and how many would now. Latency alone would be late by as long as the RPCs take,
// and the number in flight alone says nothing about how fast they are worked on.
//
// RPCs that fail are no part of the latency, or failing fast would look like being
// fast. A report has the part of the RPCs of the last two seconds that failed beside
// it, and clients divide by what is left. RPCs that the client cancelled, or whose
// deadline passed, have not failed by this.
//
// Streams are not counted, since one that waits for events all day is no load, nor are
// probes, health checks and reflection.
//
// # Wire
//
// A probe is a unary RPC whose request is empty, so it needs neither a connection nor
// a port of its own. Any server that answers it takes part:
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
// Probes say how busy a server is. Whoever may make RPCs to the server may ask, unless an
// interceptor of the server refuses the method [Method].
//
// # Cost
//
// An RPC costs the server one small allocation and a few atomic operations, and what
// gRPC does for a server with a stats handler. A probe costs what a small RPC costs, since
// both are the same to gRPC's transport; what is done here is a few tenths of a percent of
// that (BenchmarkReport). That is why clients ask no more than they are told to
// (probesPerRpc), and the policy is for RPCs that take milliseconds: three probes are half a
// percent of an RPC that needs 15 ms of a processor.
//
// No way of asking over gRPC is cheap beside a small RPC. Processor time of a server on a
// busy machine of two processors, 32 callers, the least of three runs of
// BenchmarkServerCPU:
//
//	RPC that echoes 32 bytes, no Load        22.5 µs
//	the same with a Load                     26.1
//	probe                                    25.3
//	RPC that says its load in its trailer    35.4    9.3 more
//	message on an open stream, and back       5.6    a quarter of a small RPC
//
// # Rejected
//
// ORCA reports out of band (A51) come once in 30 s at the most, by grpc-go's default,
// and at a period instead of when they are needed. Trailers of RPCs tell only of servers
// that were picked, and cost more than they seem to: their values are new each time, so HPACK
// never has them in its table, and all clients of the server are sent them. A stream of
// probes for each connection would cost a quarter of what probes do. That is still far
// above a twentieth of a small RPC, as two frames have to be read and written whatever they
// say; and it would keep GracefulStop waiting, and need a protocol where a unary RPC has
// deadlines, statuses and cancellation.
package probe
