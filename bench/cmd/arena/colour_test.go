// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"testing"
)

// TestColours: each colour shows on the page in light and in dark mode: its contrast with the
// background, as WCAG 2 defines it, is at least 2.
func TestColours(t *testing.T) {
	luminance := func(hex string) (l float64) {
		var rgb [3]int
		if _, err := fmt.Sscanf(hex, "#%02x%02x%02x", &rgb[0], &rgb[1], &rgb[2]); err != nil {
			t.Fatalf("%s: %v", hex, err)
		}
		for i, weight := range []float64{.2126, .7152, .0722} {
			c := float64(rgb[i]) / 255
			if c <= .04045 {
				c /= 12.92
			} else {
				c = math.Pow((c+.055)/1.055, 2.4)
			}
			l += weight * c
		}
		return l
	}
	for impl, colours := range palette {
		for _, colour := range colours {
			if colour == "currentColor" {
				continue // the text's
			}
			for _, page := range []string{"#ffffff", "#121212"} {
				a, b := luminance(colour), luminance(page)
				if contrast := (math.Max(a, b) + .05) / (math.Min(a, b) + .05); contrast < 2 {
					t.Errorf("%s, %s has a contrast of %.2f on %s", impl, colour, contrast, page)
				}
			}
		}
	}
}
