// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package doccheck

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSupported checks that supported.md has each gRFC that requirements.tsv cites, and a
// test for each row with "yes".
func TestSupported(t *testing.T) {
	page := read(t, "integrate/docs/supported.md")
	all := regexp.MustCompile(`\b(A\d+)\b`).FindAllStringSubmatch(read(t, requirements), -1)
	if len(all) == 0 {
		t.Fatal("requirements.tsv has no gRFCs")
	}
	for _, m := range all {
		if !regexp.MustCompile(`(?m)^\| (A\d+, )*` + m[1] + `\b`).MatchString(page) {
			t.Errorf("supported.md has no row of %s", m[1])
		}
	}
	for row := range strings.Lines(page) {
		if cells := strings.Split(row, "|"); len(cells) > 3 && strings.HasPrefix(strings.TrimSpace(cells[2]), "yes") && !strings.Contains(row, "`Test") {
			t.Errorf("supported.md names no test: %s", row)
		}
	}
}

// TestTuning: tuning.md has a row for each field of integrate.Config, in the type's order.
func TestTuning(t *testing.T) {
	_, body, _ := strings.Cut(read(t, "integrate/config.go"), "type Config struct {\n")
	body, _, _ = strings.Cut(body, "\n}")
	names := func(text, pattern string) (list []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			list = append(list, m[1])
		}
		return list
	}
	got, want := names(read(t, "integrate/docs/tuning.md"), "(?m)^\\| `Config\\.(\\w+)` \\|"), names(body, `(?m)^\t(\w+) `)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("tuning.md has %v, integrate.Config has %v", got, want)
	}
}

// TestTopLevel: the folders at the top are the ones that ARCHITECTURE.md explains.
func TestTopLevel(t *testing.T) {
	folders := []string{".ci", ".git", ".github", "bench", "edf", "fuzz", "integrate", "internal", "picker", "ringhash", "xds"}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(folders, e.Name()) {
			t.Errorf("unexpected folder %s at the top", e.Name())
		}
	}
}
