// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"regexp"
	"slices"
	"testing"
)

// TestTuning: tuning.md has a row for each field of integrate.Config, in the type's order.
func TestTuning(t *testing.T) {
	page, code := read(t, "integrate/docs/tuning.md"), read(t, "integrate/config.go")
	body := regexp.MustCompile(`(?ms)^type Config struct \{\n(.*?)^\}`).FindStringSubmatch(code)
	if body == nil {
		t.Fatal("there is no integrate.Config")
	}
	got := regexp.MustCompile("(?m)^\\| `Config\\.(\\w+)` \\|").FindAllStringSubmatch(page, -1)
	want := regexp.MustCompile(`(?m)^\t(\w+) `).FindAllStringSubmatch(body[1], -1)
	names := func(list [][]string) (names []string) {
		for _, m := range list {
			names = append(names, m[1])
		}
		return names
	}
	if !slices.Equal(names(got), names(want)) {
		t.Errorf("tuning.md has %v, integrate.Config has %v", names(got), names(want))
	}
}
