// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCoverageTable: the tests that COVERAGE.md names exist.
func TestCoverageTable(t *testing.T) {
	table, err := os.ReadFile("COVERAGE.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Example)\w+)\(`)
	for _, pattern := range []string{"../*/*_test.go", "../*/*/*_test.go", "../*/*/*/*_test.go", "../*/*/*/*/*_test.go", "../*/*/*/*/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range function.FindAllSubmatch(src, -1) {
				declared[string(m[1])] = true
			}
		}
	}
	rows := 0
	for line := range strings.Lines(string(table)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[3], "Test") && !strings.Contains(cells[3], "Example") {
			continue
		}
		rows++
		for name := range strings.SplitSeq(cells[3], ",") {
			if name = strings.TrimSpace(name); !declared[name] {
				t.Errorf("%s: there is no %s", strings.TrimSpace(cells[1]), name)
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d rows", rows)
	}
}
