// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench provides the scoreboard: a benchmark for every claim of speed. Each runs next
// to its counterparts in the same process and run, since a ratio is robust on a noisy machine
// and a time is not.
//
// Names are Benchmark<Op>/impl=…/<parameters>, so that
//
//	benchstat -col /impl
//
// compares the implementations. impl=ours is this module, impl=stock
// is google.golang.org/grpc/xds and grpc-go's public policies, impl=round_robin
// is grpc-go's round_robin over a static list, without any xDS: the floor.
// README.md describes the other implementations, the method and the noise.
//
// Benchmarks that need internals of gRPC are in bench/overlay and run with make bench only.
package bench
