// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSnippets: each block of Go in a Markdown file compiles, in this module.
func TestSnippets(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command")
	}
	var list []snippet
	err := sources(os.DirFS(root), func(name, text string) {
		if path.Ext(name) == ".md" {
			list = append(list, snippets(name, text)...)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("there is no snippet; README.md has some")
	}
	for _, fault := range compile(t, list) {
		t.Error(fault)
	}
}

// The check takes what a reader can use, and sees what does not compile where
// it is in the text.
func TestCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command")
	}
	const text = "<!-- given: creds credentials.TransportCredentials -->\n" +
		"```go\ncc, err := integrate.NewClient(\"xds:///a\", grpc.WithTransportCredentials(creds))\n" +
		"if err != nil {\n\treturn err\n}\n```\n" +
		"One with declarations:\n```go\nimport \"fmt\"\n\ntype t struct{}\n\nfunc (t) String() string { return fmt.Sprint(1) }\n```\n" +
		"A file:\n```go\npackage main\n\nfunc main() {}\n```\n" +
		"Not Go:\n```\nx := := y\n```\n" +
		"Two results used as one:\n```go\nopts := append([]grpc.DialOption{}, integrate.DialOptions(integrate.Config{})...)\n```\n" +
		"No Go at all:\n```go\nx := := y\n```\n"
	faults := compile(t, snippets("TEXT.md", text))
	if len(faults) != 2 || !strings.Contains(faults[0], "TEXT.md:32: ") || !strings.Contains(faults[1], "TEXT.md:28:") {
		t.Errorf("faults are %q, want one in line 32 and one in line 28", faults)
	}
}

// A snippet is a block of Go.
type snippet struct {
	file string
	line int // of its first line of Go
	text string
	// given are what a fragment takes for granted, as the parameters of a
	// function: "<!-- given: opts []grpc.DialOption -->" above the block.
	given string
}

var fence = regexp.MustCompile("(?ms)(?:^<!-- given: ([^\n]*) -->\n)?^```go\n(.*?)^```")

func snippets(file, text string) []snippet {
	var list []snippet
	for _, m := range fence.FindAllStringSubmatchIndex(text, -1) {
		s := snippet{file: file, line: 1 + strings.Count(text[:m[4]], "\n"), text: text[m[4]:m[5]]}
		if m[2] >= 0 {
			s.given = text[m[2]:m[3]]
		}
		list = append(list, s)
	}
	return list
}

// known are the packages whose names need no import in a fragment.
var known = []string{
	"context", "crypto/tls", "errors", "fmt", "log", "net", "net/http", "net/netip", "os", "testing", "time",
	"google.golang.org/grpc", "google.golang.org/grpc/codes", "google.golang.org/grpc/credentials", "google.golang.org/grpc/credentials/insecure",
	"google.golang.org/grpc/keepalive", "google.golang.org/grpc/metadata", "google.golang.org/grpc/status",
	"github.com/xdslb/xdslb/edf", "github.com/xdslb/xdslb/integrate", "github.com/xdslb/xdslb/picker", "github.com/xdslb/xdslb/ringhash",
	"github.com/xdslb/xdslb/integrate/debug", "github.com/xdslb/xdslb/xds", "github.com/xdslb/xdslb/xds/xdstest",
}

// source returns a file of package p with the snippet: as it is if it is a
// whole file, or else behind its imports and those of known packages that it
// uses, among declarations or, if it has none, in a function that returns an
// error. Compilers report the lines of the Markdown file.
func (s *snippet) source() (string, error) {
	at := func(line int) string { return fmt.Sprintf("//line %s:%d\n", s.file, line) }
	if _, err := parser.ParseFile(token.NewFileSet(), "", s.text, parser.PackageClauseOnly); err == nil {
		return at(s.line) + s.text, nil
	}
	const clause = "package p\n"
	fset := token.NewFileSet()
	end := 0 // of the imports in the text
	imports := make(map[string]bool)
	if head, err := parser.ParseFile(fset, "", clause+s.text, parser.ImportsOnly); err == nil {
		for _, d := range head.Decls {
			end = fset.Position(d.End()).Offset - len(clause)
		}
		for _, i := range head.Imports {
			imports[strings.Trim(i.Path.Value, `"`)] = true
		}
	}
	first, body := s.text[:end], at(s.line+strings.Count(s.text[:end], "\n"))+s.text[end:]
	var fault error
	for _, body := range []string{body, "func _(" + s.given + ") error {\n" + body + "\nreturn nil\n}\n"} {
		file, err := parser.ParseFile(token.NewFileSet(), "", clause+body, 0)
		if err == nil {
			return clause + at(s.line) + first + "\n" + missing(file, imports) + body, nil
		}
		fault = err // the parser heeds the line directive as the compiler does
	}
	return "", fault
}

// missing imports the known packages that a file uses and does not import.
func missing(file *ast.File, imports map[string]bool) string {
	used := make(map[string]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				used[x.Name] = true
			}
		}
		return true
	})
	text := ""
	for _, p := range known {
		if used[path.Base(p)] && !imports[p] {
			text += fmt.Sprintf("import %q\n", p)
		}
	}
	return text
}

// A line of the compiler's that is no fault of a fragment: what becomes of its
// variables is the reader's affair.
var harmless = regexp.MustCompile(`: declared and not used: |^# `)

// compile returns what the compiler has against the snippets. They are packages
// of the module that exist in an overlay only.
func compile(t *testing.T, list []snippet) (faults []string) {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var overlay struct{ Replace map[string]string }
	overlay.Replace = make(map[string]string)
	packages := make(map[string]bool)
	for i, s := range list {
		text, err := s.source()
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		file := filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("snippet%d", i)
		overlay.Replace[filepath.Join(here, name, "x.go")] = file
		packages["./"+name] = true
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	flags := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(flags, text, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"build", "-gcflags=-e", "-overlay", flags}, slices.Sorted(maps.Keys(packages))...)
	out, err := exec.Command("go", args...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" && !harmless.MatchString(line) {
			faults = append(faults, line)
		}
	}
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	return faults
}
