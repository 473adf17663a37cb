// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package doccheck

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tests column of integrate/docs/requirements.tsv")

const requirements = "integrate/docs/requirements.tsv"

// families are the numbered requirements that the table must have, and how many there are of each.
var families = map[string]int{
	"A27-ARCH": 7, "A27-BOOT": 11, "A27-NODE": 4, "A27-RES": 10, "A27-UNK": 3, "A27-LDS": 4, "A27-LIS": 3, "A27-RDS": 2,
	"A27-RC": 4, "A27-CDS": 3, "A27-CL": 6, "A27-EDS": 1, "A27-CLA": 14, "A27-CDSP": 1, "A27-EDSP": 5, "A27-LRS": 4,
	"T-XDS": 19, "T-WATCH": 6, "T-EDS": 7, "T-RC": 8, "T-LRS": 5, "T-BOOT": 1, "T-RING": 9, "T-PRIO": 6, "T-OVL": 5,
}

// TestRequirements checks that requirements.tsv has each numbered requirement once, that each row
// has a test, and that the tests are those whose comments cite the id, and further ones that exist.
func TestRequirements(t *testing.T) {
	page := read(t, requirements)
	texts := textsOf(t, os.DirFS(root))
	generated, faults := generateTests(page, citations(texts))
	for _, fault := range faults {
		t.Error(fault)
	}
	switch {
	case generated == page:
	case *update:
		if err := os.WriteFile(filepath.Join(root, requirements), []byte(generated), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the tests column of %s is out of date: go test ./bench/doccheck -run TestRequirements -update", requirements)
	}
	rows := map[string]int{}
	for _, m := range requirement.FindAllStringSubmatch(page, -1) {
		rows[m[1]]++
	}
	for id, n := range rows {
		if n > 1 && strings.Contains(id, "-") && !strings.Contains(id, ", ") {
			t.Errorf("%s has %d rows", id, n)
		}
	}
	for family, n := range families {
		for i := range n + 1 {
			if id := fmt.Sprint(family, "-", i+1); rows[id] > 0 != (i < n) {
				t.Errorf("%s has %d rows", id, rows[id])
			}
		}
	}
}

// TestGenerateTests checks that cited tests are added, that missing tests are removed, and that a
// row without tests is reported.
func TestGenerateTests(t *testing.T) {
	cited := citations(map[string]string{"a_test.go": "package a\n\n// TestB covers T-RC-2 and A27.\nfunc TestB() {}\n\nfunc TestC() {}\n"})
	got, faults := generateTests("T-RC-1\tone\tA28\t`TestGone`\nT-RC-2\ttwo\tA28\t`TestC` `TestGone`\nA27\tthree\tgRFC\t`TestC`\n–\tfour\txdslb\t`make istio`\n", cited)
	want := "T-RC-1\tone\tA28\t\nT-RC-2\ttwo\tA28\t`TestB` `TestC`\nA27\tthree\tgRFC\t`TestC`\n–\tfour\txdslb\t`make istio`\n"
	if got != want || !slices.Equal(faults, []string{"T-RC-1 has no test"}) {
		t.Errorf("generated %q with the faults %q, want %q", got, faults, want)
	}
}

// A requirement is a row of the table: id, rule, source and tests.
var requirement = regexp.MustCompile(`(?m)^([^\t\n]+)(\t[^\t\n]*\t[^\t\n]*\t)([^\t\n]*)$`)

// citations maps the names of all tests to the ids in their comments.
func citations(texts map[string]string) map[string][]string {
	tests := map[string][]string{}
	for name, text := range texts {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			continue // the compiler reports it
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && testName.MatchString(f.Name.Name) {
				tests[f.Name.Name] = append(tests[f.Name.Name], id.FindAllString(f.Doc.Text(), -1)...)
			}
		}
	}
	return tests
}

// generateTests returns the page with the tests column of each row, and the ids without tests. Ids
// of gRFCs and decisions have several rows, to which citations do not apply.
func generateTests(page string, cited map[string][]string) (generated string, faults []string) {
	generated = requirement.ReplaceAllStringFunc(page, func(row string) string {
		m := requirement.FindStringSubmatch(row)
		names := map[string]bool{}
		for _, q := range quoted.FindAllStringSubmatch(m[3], -1) {
			if _, exists := cited[q[1]]; exists || !testName.MatchString(q[1]) {
				names["`"+q[1]+"`"] = true
			}
		}
		for name, ids := range cited {
			if strings.Contains(m[1], "-") && slices.Contains(ids, m[1]) {
				names["`"+name+"`"] = true
			}
		}
		if len(names) == 0 && m[1] != "id" {
			faults = append(faults, m[1]+" has no test")
		}
		tests := strings.Join(slices.Sorted(maps.Keys(names)), " ")
		if m[1] == "id" {
			tests = m[3]
		}
		return m[1] + m[2] + tests
	})
	return generated, faults
}
