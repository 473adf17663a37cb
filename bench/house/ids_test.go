// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// An id is one of a requirement (A27-CLA-6, T-RING-2, EDF-1, LB-SEC-1, GD-14),
// of a decision (D9a), or of a gRFC (A27).
var id = regexp.MustCompile(`\b(?:A\d+-[A-Z]+-\d+|T-[A-Z]+-\d+|EDF-\d+|LB-[A-Z]+-\d+|GD-\d+|D\d+[a-z]?|A\d+)\b`)

// A definition is a line of Markdown that begins with an id and says something:
// a heading, an item of a list, a row of a table.
var definition = regexp.MustCompile(`(?m)^(?:#+ |[-*] |\| |\*\*)\**(` + id.String() + `)\**[ |:.,—–-]+\S`)

// TestIDs: each id that code, tests and texts cite is explained in a Markdown
// file of the repository.
func TestIDs(t *testing.T) {
	unknown, err := undefinedIDs(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for name, places := range unknown {
		t.Errorf("no Markdown file explains %s, which is cited at %s", name, strings.Join(places, ", "))
	}
}

// The check sees what is missing, and takes neither a citation nor a table of
// coverage for an explanation.
func TestUndefinedIDs(t *testing.T) {
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	got, err := undefinedIDs(fstest.MapFS{
		"a/a.go":        text("// Pick obeys D2 and D9a (A27-CLA-6, T-RING-2).\n// It is UTF-8.\n"),
		"a/COVERAGE.md": text("| T-RING-2 | TestRing |\n"),
		"README.md":     text("Of\nA27-CLA-6, more.\n### D2: weights\n| A27-CLA-7 | is explained |\n"),
		".git/x.go":     text("// T-NONE-1"),
	})
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for name, places := range got {
		list = append(list, fmt.Sprint(name, " ", places))
	}
	slices.Sort(list)
	want := []string{"A27-CLA-6 [README.md:2 a/a.go:1]", "D9a [a/a.go:1]", "T-RING-2 [a/COVERAGE.md:1 a/a.go:1]"}
	if !slices.Equal(list, want) {
		t.Errorf("got %q, want %q", list, want)
	}
}

// undefinedIDs returns the ids that Go and Markdown files cite and no Markdown
// file defines, with the lines that cite them.
func undefinedIDs(fsys fs.FS) (map[string][]string, error) {
	cited, defined := make(map[string][]string), make(map[string]bool)
	err := sources(fsys, func(name, text string) {
		if path.Ext(name) == ".md" && path.Base(name) != "COVERAGE.md" {
			for _, m := range definition.FindAllStringSubmatch(text, -1) {
				defined[m[1]] = true
			}
		}
		n := 0
		for line := range strings.Lines(text) {
			n++
			for _, found := range id.FindAllString(line, -1) {
				cited[found] = append(cited[found], fmt.Sprintf("%s:%d", name, n))
			}
		}
	})
	for name := range defined {
		delete(cited, name)
	}
	return cited, err
}
