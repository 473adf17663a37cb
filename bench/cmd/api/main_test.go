// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func check(t *testing.T, code string) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "a.go", "package a\n"+code, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := (&types.Config{Importer: importer.Default()}).Check("a", fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const before = `
const C = "c"
var V int
func F(a int, b ...string) (err error) { return nil }
type S struct { A int ` + "`json:\"a\"`" + `; b int }
func (S) M() {}
func (*S) P(x int) {}
func (*S) q() {}
type T struct { S; F func() }
type I interface { N() }
type J interface { N(); n() }
type K uint8
type L = S
type u struct { A int }
type U struct { u; *v }
type v struct { B int }
type G[T any] struct{ A T }
func H[T any](a T) {}
`

func TestList(t *testing.T) {
	want := []string{
		`const C untyped string = "c"`,
		"func F(int, ...string) error",
		"func H[T any](T)",
		"method (*S) P(int)",
		"method (*T) P(int)",
		"method (J) N()",
		"method (S) M()",
		"method (T) M()",
		"type G[T any] struct",
		"type G[T any], field A T",
		"type I interface { N() }",
		"type J interface, sealed",
		"type K uint8",
		"type L = S",
		"type S struct comparable",
		"type S, field A int `json:\"a\"`",
		"type T struct",
		"type T, field F func()",
		"type T, field embedded S S",
		"type U struct comparable",
		"type U, field A int",
		"type U, field B int",
		"var V int",
	}
	if got := list(check(t, before)); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What breaks programs is told with what there is instead; what does not is not.
func TestGone(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{"var V int", "var V, W int", ""},
		{"func F(a int, b", "func F(c int, d", ""},
		{"A int `json:\"a\"`; b int", "A int `json:\"a\"`; B, c int", ""},
		{"N(); n()", "N(); n(); O()", ""},
		{"type u struct { A int }", "type u struct { A, C int }", ""},
		{"type u struct { A int }", "type u struct { C int }", "\n  - type U, field A int"},
		{"H[T any]", "H[T comparable]", "\n  - func H[T any](T)\n  + func H[T comparable](T)"},
		{"G[T any]", "G[T comparable]", "\n  - type G[T any] struct\n  + type G[T comparable] struct comparable\n  - type G[T any], field A T"},
		{"const C = \"c\"", "const C = \"d\"", "\n  - const C untyped string = \"c\"\n  + const C untyped string = \"d\""},
		{"var V int", "", "\n  - var V int"},
		{"func F(a int,", "func F(a int8,", "\n  - func F(int, ...string) error\n  + func F(int8, ...string) error"},
		{"json:\"a\"", "json:\"b\"", "\n  - type S, field A int `json:\"a\"`\n  + type S, field A int `json:\"b\"`"},
		{"b int }", "b func() }", "\n  - type S struct comparable\n  + type S struct"},
		{"interface { N() }", "interface { N(); O() }", "\n  - type I interface { N() }\n  + type I interface { N(); O() }"},
		{"P(x int)", "P(x uint)", "\n  - method (*S) P(int)\n  + method (*S) P(uint)\n  - method (*T) P(int)\n  + method (*T) P(uint)"},
		{"type K uint8", "type K uint16", "\n  - type K uint8\n  + type K uint16"},
	} {
		after := strings.Replace(before, tt.old, tt.new, 1)
		if after == before {
			t.Fatalf("%q is not in the code", tt.old)
		}
		if got := strings.Join(gone(list(check(t, before)), list(check(t, after))), ""); got != tt.want {
			t.Errorf("%q to %q: got %q, want %q", tt.old, tt.new, got, tt.want)
		}
	}
}

// TestRun: an API that has lost something is refused, with the package, the line, what is
// there instead and what to do. One that has gained something is not.
func TestRun(t *testing.T) {
	t.Chdir("../../..")
	dir := t.TempDir()
	if err := run(dir, true); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, false); err != nil {
		t.Errorf("nothing has changed, and %v", err)
	}
	change := func(file, old, new string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), old) {
			t.Fatalf("%s lacks %q (%v)", file, old, err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(strings.Replace(string(text), old, new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change("integrate-debug.txt", "type Process, field PID int `json:\"pid\"`\n", "")
	if err := run(dir, false); err != nil {
		t.Errorf("a field is new, and %v", err)
	}
	change("integrate-debug.txt", "func Handler() net/http.Handler", "func Handler(int) net/http.Handler")
	change("picker.txt", "type LocalityID, field Zone string", "type LocalityID, field Zone int")
	err := run(dir, false)
	for _, want := range []string{
		"breaks programs", "CHANGELOG.md", "make api",
		"integrate/debug: \n  - func Handler(int) net/http.Handler\n  + func Handler() net/http.Handler",
		"picker: \n  - type LocalityID, field Zone int\n  + type LocalityID, field Zone string",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

// TestStable: the packages are those that versioning.md calls stable, and types of others are
// found.
func TestStable(t *testing.T) {
	text, err := os.ReadFile("../../../integrate/docs/versioning.md")
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for row := range strings.Lines(string(text)) {
		if cells := strings.Split(row, "|"); len(cells) > 3 && strings.TrimSpace(cells[2]) == "stable" {
			for _, m := range regexp.MustCompile(`\[([a-z/]+)\]`).FindAllStringSubmatch(cells[1], -1) {
				said = append(said, m[1])
			}
		}
	}
	said = append(said, "integrate/stockmetrics/withstock") // "and its withstock"
	slices.Sort(said)
	if !slices.Equal(said, stable) {
		t.Errorf("versioning.md has %q, and the packages are %q", said, stable)
	}
	lines := []string{"func F(" + module + "xds.Client)", "func G(" + module + "picker.LocalityID, " + module + "picker.Policy, " + module + "integrate.Event)"}
	if got := strings.Join(foreign("p", lines), ""); !strings.Contains(got, "xds.Client is not stable") || strings.Contains(got, "func G") {
		t.Errorf("what is foreign is %q", got)
	}
}
