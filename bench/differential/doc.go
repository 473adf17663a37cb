// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package differential compares this module with google.golang.org/grpc/xds. Its
// tests give random worlds (listeners, routes, clusters, endpoints, and updates of
// them, good and bad) to a client of each kind, in one process and in one bubble of
// virtual time, and compare what can be observed: status codes, the backends that
// RPCs reach, attempts and metadata as backends see them, what is acknowledged and
// rejected, and what is subscribed to.
//
//	go test ./bench/differential -run 'TestDifferential$' -model.runs 300
//	go test ./bench/differential -run 'TestDifferential$' -model.runs 1 -model.seed 17 -v
//
// The two differ on purpose in some places. reasons_test.go lists them, each with
// the requirement that it follows, and a predicate that says which observations of
// which worlds it is about. Whatever no reason covers is a failure.
//
// Observations that depend on chance are compared as samples: where a first sample
// looks different, a second, larger one has to say so too, by seven standard deviations.
//
// TestCallOptions is a table of what applications do around an RPC (interceptors,
// call options, stats handlers), which both clients go through as well.
package differential
