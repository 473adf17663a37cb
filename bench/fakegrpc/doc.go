// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakegrpc is gRPC's side of an LB policy of any implementation, without connections. A CC,
// as policies usually call it, has SubConns that a test moves from state to state, as gRPC's rules
// allow.
//
// A Channel runs a policy, to measure the time and memory that the policy itself needs, with ten
// thousand endpoints if necessary: Connect makes a SubConn READY, or TRANSIENT_FAILURE if the test
// wants its address to fail. A policy is started either by name on a list of addresses, or by an
// xDS resolver, whose service config names it. As in gRPC, calls into a policy are serialized: they
// are queued and made by one goroutine.
package fakegrpc
