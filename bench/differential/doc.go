// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package differential compares this module with google.golang.org/grpc/xds. Its tests give
// random worlds (listeners, routes, clusters, endpoints, and valid and invalid updates of them)
// to a client of each kind, in one process and in one bubble of virtual time, and compare the
// observations: status codes, the backends that RPCs reach, attempts and metadata as backends
// see them, accepted and rejected resources, and subscriptions.
//
//	go test ./bench/differential -run 'TestDifferential$' -model.runs 300
//	go test ./bench/differential -run 'TestDifferential$' -model.runs 1 -model.seed 17 -v
//
// The two differ deliberately in some places. reasons_test.go lists them, each with the
// requirement that it follows, and a predicate for the affected observations and worlds. A
// difference without a reason is a failure.
//
// Random observations are compared as samples: if a first sample differs, a second, larger one
// has to differ as well, by seven standard deviations.
//
// TestCallOptions is a table of application features around an RPC (interceptors, call options,
// stats handlers), which both clients run as well.
package differential
