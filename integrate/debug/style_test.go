// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestContrast: texts and bars have the contrast that WCAG 2.1 level AA requires (1.4.3, 1.4.11), in
// light and dark.
func TestContrast(t *testing.T) {
	light, rest, _ := strings.Cut(styleBase, "@media (prefers-color-scheme: dark)")
	dark, _, _ := strings.Cut(rest, "* {")
	for name, text := range map[string]string{"light": light, "dark": dark} {
		colors := map[string]string{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(text, -1) {
			colors[m[1]] = m[2]
		}
		check := func(want float64, background string, foregrounds ...string) {
			for _, foreground := range foregrounds {
				if got := contrast(t, colors[foreground], colors[background]); got < want {
					t.Errorf("%s: %s on %s has a contrast of %.2f, want %v", name, foreground, background, got, want)
				}
			}
		}
		for _, background := range []string{"page", "card"} {
			check(4.5, background, "ink", "dim", "link", "good", "bad", "warn")
		}
		check(4.5, "calm-bg", "calm", "ink", "dim", "link", "bad")
		for _, state := range []string{"good", "warn", "bad"} {
			check(4.5, state+"-bg", state)
		}
		check(3, "card", "expected", "observed", "dim") // bars, borders of fields
	}
}

// contrast returns the contrast ratio of two colors as defined by WCAG 2.1.
func contrast(t *testing.T, a, b string) float64 {
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + .05) / (min(x, y) + .05)
}

func luminance(t *testing.T, color string) (sum float64) {
	t.Helper()
	for i, weight := range []float64{.2126, .7152, .0722} {
		n, err := strconv.ParseUint(color[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= .03928 {
			sum += weight * c / 12.92
		} else {
			sum += weight * math.Pow((c+.055)/1.055, 2.4)
		}
	}
	return sum
}
