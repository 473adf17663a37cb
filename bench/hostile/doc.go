// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile measures what control planes that misbehave cost an XdsClient: memory, CPU,
// log lines, the time that its lock is held, and how long it takes to close. Its tests run
// each server in a child process on loopback, so that the figures are the client's own.
//
// TestHostile sends each server's largest response once and checks the bytes that the client
// allocates, which hardly vary. With -hostile each server goes on for some seconds, and the
// test prints the table of xds/SECURITY.md:
//
//	go test ./bench/hostile -run 'TestHostile$' -v -hostile 3s
//
// A client reads a stream at 5000 responses in a second at most, after a burst of 1000, so
// servers that send small ones without a pause get some 16,000 handled in that time.
package hostile
