// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
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
`

func TestList(t *testing.T) {
	want := []string{
		`const C untyped string = "c"`,
		"func F(int, ...string) error",
		"method (*S) P(int)",
		"method (*T) P(int)",
		"method (J) N()",
		"method (S) M()",
		"method (T) M()",
		"type I interface { N() }",
		"type J interface, sealed",
		"type K uint8",
		"type L = S",
		"type S struct comparable",
		"type S, field A int `json:\"a\"`",
		"type T struct",
		"type T, field F func()",
		"type T, field embedded S S",
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
		{"type u struct { A int }", "", ""},
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
