// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// requirements are the families of ids that COVERAGE.md has to have, and how many
// ids there are in each: they are numbered from 1.
var requirements = map[string]int{
	"A27-ARCH": 7, "A27-BOOT": 11, "A27-NODE": 4, "A27-RES": 10, "A27-UNK": 3, "A27-LDS": 4, "A27-LIS": 3, "A27-RDS": 2,
	"A27-RC": 4, "A27-CDS": 3, "A27-CL": 6, "A27-EDS": 1, "A27-CLA": 14, "A27-CDSP": 1, "A27-EDSP": 5, "A27-LRS": 4,
	"T-XDS": 19, "T-WATCH": 6, "T-EDS": 7, "T-RC": 8, "T-LRS": 5, "T-BOOT": 1,
}

// TestCoverage checks that COVERAGE.md has every id, once, with a test at least,
// and that the tests it names exist.
func TestCoverage(t *testing.T) {
	text, err := os.ReadFile("COVERAGE.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| ([^|]+?) \\| ((?:`[a-z/]+\\.Test\\w+` ?)+)\\|")
	name := regexp.MustCompile("`([a-z/]+)\\.(Test\\w+)`")
	rows := map[string]int{}
	known := map[string]map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		rows[m[1]]++
		for _, ref := range name.FindAllStringSubmatch(m[2], -1) {
			dir, test := ref[1], ref[2]
			if known[dir] == nil {
				known[dir] = testsIn(t, filepath.Join("..", dir))
			}
			if !known[dir][test] {
				t.Errorf("%s: there is no test %s.%s", m[1], dir, test)
			}
		}
	}
	for id, n := range rows {
		if n > 1 {
			t.Errorf("%s is there %d times", id, n)
		}
	}
	for family, n := range requirements {
		for i := range n {
			if id := fmt.Sprint(family, "-", i+1); rows[id] == 0 {
				t.Errorf("%s has no test", id)
			}
		}
		if id := fmt.Sprint(family, "-", n+1); rows[id] != 0 {
			t.Errorf("%s is not a requirement", id)
		}
	}
	if n := strings.Count(string(text), "\n| ") - strings.Count(string(text), "\n| id |"); n != len(rows) {
		t.Errorf("%d rows, of which %d could be read", n, len(rows))
	}
}

// testsIn returns the names of the test functions in a directory.
func testsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	tests := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				tests[fn.Name.Name] = true
			}
		}
	}
	return tests
}
