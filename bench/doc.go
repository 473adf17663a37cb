// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench is the scoreboard: every claim of speed as a benchmark, beside
// its counterparts and in the same process and run, since a ratio survives a
// noisy machine and a time does not.
//
// Names are Benchmark<Op>/impl=…/<parameters>, so that
//
//	benchstat -col /impl
//
// puts the implementations side by side. impl=ours is this module, impl=stock
// is google.golang.org/grpc/xds and grpc-go's public policies, impl=round_robin
// is grpc-go's round_robin over a static list, without any xDS: the floor.
// README.md has the others, the method, and what is known about noise.
//
// Benchmarks that need a look inside gRPC's channel are in bench/inside and run
// by make bench only.
package bench
