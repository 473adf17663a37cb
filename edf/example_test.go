// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf_test

import (
	"fmt"
	"sync/atomic"

	"github.com/xdslb/xdslb/edf"
)

// A caller that already counts requests can use the count as ticket, and continues counting
// when the weights change.
func ExampleSchedule_At() {
	var issued atomic.Uint64
	issued.Store(1000) // the current value of the counter
	s, err := edf.Config{Weights: []uint32{2, 1, 1}, Base: issued.Load()}.Schedule()
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 6 {
		fmt.Print(s.At(issued.Add(1)-1), " ")
	}
	s, err = s.Reweigh([]uint32{2, 1, 3}, issued.Load())
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 6 {
		fmt.Print(s.At(issued.Add(1)-1), " ")
	}
	fmt.Println()
	// Output: 0 0 1 2 0 0 0 1 2 2 0 2
}
