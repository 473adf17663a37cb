// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !seeded

package arena

// Seeded reports whether the choices that policies make at random follow the seed.
const Seeded = false

func reseed(uint64) {}
