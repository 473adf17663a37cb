// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package stage runs an LB policy, of any implementation, without a channel
// and without connections: what gRPC would do around it is made of cardboard.
// A SubConn becomes READY when it is told to connect, or fails if the play says
// so. What is left to measure is the policy: its time and memory for an
// endpoint, with ten thousand of them if need be.
//
// A policy is either started by name on a list of addresses, or by an xDS
// resolver, whose service config names it. gRPC's promise holds that calls
// into a policy come one at a time: they are queued, and one goroutine makes
// them.
package stage
