// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSupported: supported.md has each gRFC that REQUIREMENTS.md explains, and names a test
// for each row that says yes.
func TestSupported(t *testing.T) {
	page := read(t, "integrate/docs/supported.md")
	_, list, _ := strings.Cut(read(t, "REQUIREMENTS.md"), "## gRFCs\n")
	list, _, _ = strings.Cut(list, "\n## ")
	all := regexp.MustCompile(`(?m)^\| (A\d+) \|`).FindAllStringSubmatch(list, -1)
	if len(all) == 0 {
		t.Fatal("REQUIREMENTS.md has no gRFCs")
	}
	for _, m := range all {
		if !regexp.MustCompile(`(?m)^\| (A\d+, )*` + m[1] + `\b`).MatchString(page) {
			t.Errorf("supported.md has no row of %s", m[1])
		}
	}
	for row := range strings.Lines(page) {
		if cells := strings.Split(row, "|"); len(cells) > 3 && strings.HasPrefix(strings.TrimSpace(cells[2]), "yes") && !strings.Contains(cells[3], "`Test") {
			t.Errorf("supported.md names no test: %s", row)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
