// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakegrpc runs an LB policy of any implementation without a real channel and without
// connections, to measure the time and memory that the policy itself needs, with ten thousand
// endpoints if necessary. Connect makes a SubConn READY, or TRANSIENT_FAILURE if the test
// wants its address to fail.
//
// A policy is started either by name on a list of addresses, or by an xDS resolver, whose
// service config names it. As in gRPC, calls into a policy are serialized: they are queued and
// made by one goroutine.
package fakegrpc
