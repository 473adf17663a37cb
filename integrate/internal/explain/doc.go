// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package explain describes configurations, snapshots and RPCs with the types of package
// report. It reads immutable values only: the balancer adds the states of its clusters.
//
//	rpc.go       an RPC: its routes, and the clusters that they lead to
//	route.go     a route and its conditions
//	cluster.go   the policy, the TLS settings and the zones of a cluster
//	unsupported.go  features of a configuration that no channel supports
package explain
