// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !invariants

package picker

// invariants says whether Build checks what it made; see invariants.go.
const invariants = false

func (*Snapshot) checkInvariants([]ClusterState) {}

func (*builder) checkTakenOver(*group, groupInput, *Policy) {}
