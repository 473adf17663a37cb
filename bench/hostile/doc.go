// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile measures the cost of misbehaving control planes for a channel: memory, CPU, log
// lines, the time that mutexes are held, and the time to close it. Its tests run each server, and the
// backend of a normal target, in a child process on loopback, so that the figures are the client's own.
//
// A server first sends the resources of a normal target, and the channel makes an RPC. Then the server
// sends versions of its hostile resources. Successive versions differ in a byte, so that each is
// decoded, compared with the one before, and applied by the LB policy. Meanwhile a goroutine makes
// calls that take the mutex of the XdsClient and the one of the balancer, and measures the CPU time of
// the process that passes until they return.
//
// TestHostile sends a few small versions and checks the bounds of xds/SECURITY.md: bytes that are
// allocated and retained, times of mutexes, log lines, and what a closed channel leaves behind. With
// -hostile the versions have their full size, their CPU time is compared with that of a quarter,
// each server then sends for some time without a pause, and the test prints the table of that page:
//
//	go test ./bench/hostile -run 'TestHostile$' -v -hostile 3s
//
// A client reads a stream at up to 5000 responses per second, after a burst of 1000, so servers
// that send small ones continuously get some 16,000 handled in that time.
package hostile
