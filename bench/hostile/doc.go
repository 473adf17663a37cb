// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile measures the cost of misbehaving control planes for an XdsClient: memory,
// CPU, log lines, the time that its lock is held, and the time to close it. Its tests run each
// server in a child process on loopback, so that the figures are the client's own.
//
// TestHostile sends each server's largest response once and checks the bytes that the client
// allocates, which hardly vary. With -hostile each server continues for some seconds, and the
// test prints the table of xds/SECURITY.md:
//
//	go test ./bench/hostile -run 'TestHostile$' -v -hostile 3s
//
// A client reads a stream at up to 5000 responses per second, after a burst of 1000, so servers
// that send small ones continuously get some 16,000 handled in that time.
package hostile
