// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build seeded

package arena

import (
	"math/rand/v2"
	"sync"
	_ "unsafe" // for go:linkname
)

// Seeded reports whether random choices of policies follow the seed.
const Seeded = true

// globalRand is the source of the functions of math/rand/v2, which policies use. The linker
// forbids access without -checklinkname=0.
//
//go:linkname globalRand math/rand/v2.globalRand
var globalRand *rand.Rand

// reseed makes all later draws follow the seed.
func reseed(seed uint64) { *globalRand = *rand.New(&source{pcg: rand.NewPCG(seed, 4)}) }

// source is safe for concurrent use.
type source struct {
	mu  sync.Mutex
	pcg *rand.PCG
}

// Uint64 implements rand.Source.
func (s *source) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pcg.Uint64()
}
