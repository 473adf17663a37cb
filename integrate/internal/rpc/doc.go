// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package rpc has the client interceptors, which apply everything of a route except the choice
// of an endpoint: timeouts, retries, hedging, HTTP filters and sessions. It also keeps all
// attempts of an RPC on one cluster (A31).
//
// # One RPC
//
// The interceptor (interceptor.go) finds the Channel, and through it the Table in force
// (waiting.go before the first configuration). Bind (call.go) matches route and
// cluster, and puts a Call with them into the RPC's context. The RPC then passes these stages,
// as far as the plan of its route (plan.go) has them:
//
//	timeout    interceptor.go
//	filters    filter.go: fault.go, session.go, and filters of users
//	attempts   hedge.go, or retry.go, within its limits; streams are replayed (retrystream.go)
//	probe      Call.probe, for clusters that plan.go finds
//
// Each attempt (attempt.go) leads to a pick, which finds the Call in the context. The first
// pick commits the RPC to a cluster: the cluster of the route, unless headers have changed since (D13).
// Later picks use the same cluster. A Call holds no Snapshot, so that a stream that lasts for
// days does not keep an old Snapshot alive (D9).
//
// A target whose routes need no interceptor has no Plans. Its RPCs get no Call, and its picks
// do not look for one.
//
// # Concurrency
//
// A Table is immutable. This package takes no lock of the balancer. It starts a goroutine for
// each attempt at an RPC that is hedged, which ends with the attempt.
package rpc
