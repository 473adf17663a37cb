// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !seeded

package arena

// Seeded reports whether random choices of policies follow the seed.
const Seeded = false

func reseed(uint64) {}
