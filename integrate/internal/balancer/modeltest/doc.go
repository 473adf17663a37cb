// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package modeltest tests the balancer with random histories, between a simulated control plane and
// a simulated gRPC. Its tests need the build tag invariants, which gives them access to the
// balancer's state: see balancer/invariants.go.
package modeltest
