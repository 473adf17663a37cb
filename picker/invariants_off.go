// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !invariants

package picker

// invariants enables the checks of Build's results; see invariants.go.
const invariants = false

func checkLoads([]LocalityState) {}

func (*Snapshot) checkInvariants([]ClusterState) {}

func (*builder) checkReused(*group, groupInput, *Policy) {}
