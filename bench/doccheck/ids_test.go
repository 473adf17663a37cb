// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package doccheck

import (
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"testing"
	"testing/fstest"
)

// An id is one of a requirement (A27-CLA-6, T-RING-2, EDF-1, LB-SEC-1, GD-14), of a decision (D9a),
// or of a gRFC (A27).
var id = regexp.MustCompile(`\b(?:A\d+-[A-Z]+-\d+|T-[A-Z]+-\d+|EDF-\d+|LB-[A-Z]+-\d+|GD-\d+|D\d+[a-z]?|A\d+)\b`)

// A definition is a heading, list item or table row of Markdown that begins with an id or several,
// or a row of requirements.tsv.
var definition = regexp.MustCompile(`(?m)^(?:(?:#+ |[-*] |\| |\*\*)\**(` + id.String() + `(?:, ` + id.String() + `)*)\**[ |:.,—–-]+\S|(` + id.String() + `)\t)`)

// TestIDs checks that each id cited by code, tests and texts is defined in a Markdown file or a table.
func TestIDs(t *testing.T) {
	for name, places := range undefinedIDs(textsOf(t, os.DirFS(root))) {
		t.Errorf("no Markdown file and no table defines %s, cited at %s", name, places)
	}
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	got := undefinedIDs(textsOf(t, fstest.MapFS{
		"a/a.go":    text("// Pick obeys D2 and D9a (A27-CLA-6).\n// It is UTF-8.\n"),
		"README.md": text("Of\nA27-CLA-6, more.\n### D2: weights\n| A27-CLA-7 | is explained |\n"),
	}))
	if want := map[string]string{"A27-CLA-6": "README.md:2", "D9a": "a/a.go:1"}; !maps.Equal(got, want) {
		t.Errorf("undefined ids of the example are %q, want %q", got, want)
	}
}

// undefinedIDs returns the ids without definition, and where each is cited first.
func undefinedIDs(texts map[string]string) map[string]string {
	cited, defined := map[string]string{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text := texts[name]
		if ext := path.Ext(name); ext == ".md" || ext == ".tsv" {
			for _, m := range definition.FindAllStringSubmatch(text, -1) {
				for _, name := range id.FindAllString(m[1]+m[2], -1) {
					defined[name] = true
				}
			}
		}
		for _, m := range id.FindAllStringIndex(text, -1) {
			if found := text[m[0]:m[1]]; cited[found] == "" && path.Dir(name) != "bench/doccheck" {
				cited[found] = fmt.Sprintf("%s:%d", name, lineOf(text, m[0]))
			}
		}
	}
	maps.DeleteFunc(cited, func(name, _ string) bool { return defined[name] })
	return cited
}
