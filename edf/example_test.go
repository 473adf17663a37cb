// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/xdslb/xdslb/edf"
)

// The weights of three endpoints, drawn in the order of the specification.
func ExampleNewHeap() {
	h, err := edf.NewHeap([]uint32{1, 2, 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range h.Period() {
		fmt.Print(h.Next(), " ")
	}
	h.Seek(3)
	fmt.Println("and from the fourth pick on:", h.Next(), h.Next())
	// Output: 2 1 2 2 0 1 2 and from the fourth pick on: 2 0
}

// A proxy starts at a random place, so that not all of its replicas hit the heaviest
// endpoint first, and draws from any number of goroutines.
func ExampleNewSchedule() {
	endpoints := []string{"a:80", "b:80", "c:80"}
	s, err := edf.NewSchedule([]uint32{1, 2, 4}, rand.Uint64())
	if err != nil {
		fmt.Println(err)
		return
	}
	requests := make(map[string]int)
	for range 7000 {
		requests[endpoints[s.Next()]]++
	}
	fmt.Println(requests)
	// Output: map[a:80:1000 b:80:2000 c:80:4000]
}

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
