// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package istio tests channels behind Istio's control plane and agent, both of which the tests
// run on loopback without Kubernetes. It contains only tests. README.md describes how to build
// the two programs, the scenarios, and their results:
//
//	make istio ISTIO_PILOT=bin/pilot-discovery ISTIO_AGENT=bin/pilot-agent
//
// Without these variables the tests are skipped.
package istio
