// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"math"
	"testing"

	"github.com/xdslb/xdslb/picker"
)

// FuzzAlias draws with words that are spread evenly. An index owns a part of each
// of n columns at most, so its count is off by less than one for each of them.
func FuzzAlias(f *testing.F) {
	for i, w := range weightSeeds {
		f.Add(encodeWeights(w), uint64(i)<<60-1)
	}
	f.Fuzz(func(t *testing.T, list []byte, r uint64) {
		weights := decodeWeights(list)
		a, err := picker.NewAlias(weights)
		if (err == nil) != validWeights(weights) {
			t.Fatalf("weights %v: error is %v", weights, err)
		}
		if err != nil {
			return
		}
		const words = 4096
		count, sum := make([]int, len(weights)), 0.0
		for k := range uint64(words) {
			count[a.Pick(k<<52+r>>12)]++
		}
		for _, w := range weights {
			sum += float64(w)
		}
		for i, w := range weights {
			if w == 0 && count[i] > 0 || math.Abs(float64(count[i])-words*float64(w)/sum) > float64(len(weights)+1) {
				t.Fatalf("weights %v have counts %v of %d", weights, count, words)
			}
		}
		if i := a.Pick(r); weights[i] == 0 {
			t.Fatalf("weights %v: Pick(%#x) = %d", weights, r, i)
		}
	})
}
