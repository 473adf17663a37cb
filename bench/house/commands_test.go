// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// TestCommands: the commands in Markdown files can be typed. Targets and variables of make
// exist, what go runs and tests exists and has the flags, and files of the repository that
// are named are there.
func TestCommands(t *testing.T) { noFaults(t, wrongCommands) }

// The check takes each kind of command that works, and sees each that does not.
func TestWrongCommands(t *testing.T) {
	text := func(lines ...string) []byte { return []byte(strings.Join(lines, "\n") + "\n") }
	fsys := wrongRepository()
	fsys["GOOD.md"].Data = text("`make demo` `make demo test COUNT=3` `make` `go test -run 'TestA$' ./a -size 3` `go run ./cmd/x -n 3 a b`",
		"    make test    # something", "```sh", "make demo", "A=1 go test -short ./... | tail -1", "export A=b", "cd ../y && mkdir -p z",
		"go mod edit -require=x@v1", "go run ./own 1", "go build -o /tmp/z ./own", "A=b /tmp/z -x", "```", "Write `y/own/main.go`.", "```", "make bread at home", "```")
	fsys["BAD.md"].Data = text("`make none` `make demo NONE=1` `go run ./none` `go run ./cmd/x -none` `go test -run TestNone ./a`",
		"    make neither", "```sh", "go test -none ./a", "go test ./b", "go frob", "frob", "```", "```", "make nowhere", "```")
	got, err := wrongCommands(fsys)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"BAD.md:1: make none: there is no such target",
		"BAD.md:1: make demo NONE=1: the Makefile has no variable NONE",
		"BAD.md:1: go run ./none: there is no such command",
		"BAD.md:1: go run ./cmd/x -none: it has no flag -none",
		"BAD.md:1: go test -run TestNone ./a: no test matches TestNone",
		"BAD.md:2: make neither: there is no such target",
		"BAD.md:4: go test -none ./a: it has no flag -none",
		"BAD.md:5: go test ./b: there is no such package",
		"BAD.md:6: go frob: go has no such command",
		"BAD.md:7: frob: the check does not know this command",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A command is a line that a reader may type.
type command struct {
	text   string
	line   int
	strict bool // it is in a block of sh
}

var (
	shell    = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")
	indented = regexp.MustCompile(`(?m)^    ((?:make|go) .*)$`)
	inline   = regexp.MustCompile("`((?:make|go)(?: [^`\n]*)?)`")
	comment  = regexp.MustCompile(`\s#.*`)
	word     = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	target   = regexp.MustCompile(`(?m)^([a-z-]+):`)
	setting  = regexp.MustCompile(`^([A-Z][A-Z_]*)=`)
)

// commands returns those of a Markdown file.
func commands(text string) (list []command) {
	for _, m := range shell.FindAllStringSubmatchIndex(text, -1) {
		n := lineOf(text, m[2])
		for line := range strings.Lines(text[m[2]:m[3]]) {
			for part := range strings.SplitSeq(comment.ReplaceAllString(line, ""), "&&") {
				part, _, _ = strings.Cut(part, " | ")
				if part = strings.TrimSpace(part); part != "" {
					list = append(list, command{part, n, true})
				}
			}
			n++
		}
	}
	prose := proseOf(text)
	for _, pattern := range []*regexp.Regexp{indented, inline} {
		for _, m := range pattern.FindAllStringSubmatchIndex(prose, -1) {
			list = append(list, command{strings.TrimSpace(comment.ReplaceAllString(prose[m[2]:m[3]], "")), lineOf(prose, m[2]), false})
		}
	}
	slices.SortStableFunc(list, func(a, b command) int { return a.line - b.line })
	return list
}

// wrongCommands returns the commands that do not work, with their lines.
func wrongCommands(fsys fs.FS) (faults []string, err error) {
	c := &commandChecker{fsys: fsys, folders: make(map[string][]string)}
	makefile, err := fs.ReadFile(fsys, "Makefile")
	if err != nil {
		return nil, err
	}
	c.makefile = string(makefile)
	texts, err := textsOf(fsys)
	if err != nil {
		return nil, err
	}
	for name, text := range texts {
		if path.Ext(name) == ".go" {
			c.folders[path.Dir(name)] = append(c.folders[path.Dir(name)], text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if path.Ext(name) != ".md" || path.Base(name) == "CHANGELOG.md" {
			continue
		}
		c.page = texts[name]
		for _, cmd := range commands(c.page) {
			if fault := c.check(cmd); fault != "" {
				faults = append(faults, fmt.Sprintf("%s:%d: %s: %s", name, cmd.line, cmd.text, fault))
			}
		}
	}
	return faults, nil
}

type commandChecker struct {
	fsys     fs.FS
	makefile string
	folders  map[string][]string // Go files by folder
	page     string              // the Markdown file
}

// check returns what is wrong with a command, or "".
func (c *commandChecker) check(cmd command) string {
	words := word.FindAllString(cmd.text, -1)
	for len(words) > 0 && setting.MatchString(words[0]) {
		words = words[1:] // of the environment
	}
	if len(words) == 0 {
		return ""
	}
	switch words[0] {
	case "make":
		return c.make(words[1:])
	case "go":
		return c.gocmd(words[1:])
	case "export", "cd", "mkdir", "git", "curl":
		return ""
	}
	if cmd.strict && !strings.Contains(c.page, "go build -o "+words[0]+" ") {
		return "the check does not know this command"
	}
	return ""
}

func (c *commandChecker) make(words []string) string {
	for _, w := range words {
		if m := setting.FindStringSubmatch(w); m != nil {
			if !strings.Contains(c.makefile, "$("+m[1]+")") {
				return "the Makefile has no variable " + m[1]
			}
		} else if !slices.ContainsFunc(target.FindAllStringSubmatch(c.makefile, -1), func(m []string) bool { return m[1] == w }) {
			return "there is no such target"
		}
	}
	return ""
}

func (c *commandChecker) gocmd(words []string) string {
	if len(words) == 0 {
		return ""
	}
	switch words[0] {
	case "run":
		return c.run(words[1:])
	case "test":
		return c.test(words[1:])
	case "mod", "build", "vet", "tool", "get", "install", "generate", "version", "env", "list":
		return ""
	}
	return "go has no such command"
}

// run checks "go run ./folder arguments". A folder may be one that the reader makes: the page
// names its main.go.
func (c *commandChecker) run(words []string) string {
	if len(words) == 0 || !strings.HasPrefix(words[0], "./") {
		return ""
	}
	files := c.folders[path.Clean(words[0])]
	if len(files) == 0 {
		if regexp.MustCompile("`[\\w-]+/" + regexp.QuoteMeta(path.Clean(words[0])) + "/main\\.go`").MatchString(c.page) {
			return ""
		}
		return "there is no such command"
	}
	return missingFlag(words[1:], flagsOf(files), nil)
}

// test checks "go test flags ./packages flags".
func (c *commandChecker) test(words []string) string {
	var files []string
	tests := ""
	for i, w := range words {
		if (w == "-run" || w == "-bench") && i+1 < len(words) {
			tests = strings.Trim(words[i+1], `'"`)
		}
		if !strings.HasPrefix(w, "./") {
			continue
		}
		if folder, all := strings.CutSuffix(w, "/..."); all {
			for name, list := range c.folders {
				if strings.HasPrefix("./"+name, folder) {
					files = append(files, list...)
				}
			}
		} else if list := c.folders[path.Clean(w)]; len(list) == 0 {
			return "there is no such package"
		} else {
			files = append(files, list...)
		}
	}
	if tests != "" && tests != "." && tests != "^$" {
		for alternative := range strings.SplitSeq(tests, "|") {
			pattern, err := regexp.Compile(strings.SplitN(alternative, "/", 2)[0])
			if err != nil || !slices.ContainsFunc(testsOf(files), pattern.MatchString) {
				return "no test matches " + alternative
			}
		}
	}
	return missingFlag(words, flagsOf(files), testFlags)
}

// testFlags are those of go test itself that texts may use.
var testFlags = []string{"bench", "benchmem", "benchtime", "count", "cpu", "cover", "fuzz", "fuzztime", "json", "race", "run", "short", "tags", "timeout", "v"}

// missingFlag returns what to say of the first flag that there is not.
func missingFlag(words, own, more []string) string {
	for _, w := range words {
		name, isFlag := strings.CutPrefix(w, "-")
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if _, err := strconv.ParseFloat(w, 64); isFlag && err != nil && !slices.Contains(own, name) && !slices.Contains(more, name) {
			return "it has no flag -" + name
		}
	}
	return ""
}

// flagsOf returns the flags that Go files define: calls such as flag.Int("size", ...) and
// flag.Var(&x, "size", ...).
func flagsOf(files []string) (names []string) {
	for _, text := range files {
		file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
		if err != nil {
			continue // the compiler's business
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			at := 0
			if strings.HasSuffix(sel.Sel.Name, "Var") {
				at = 1
			}
			if lit, ok := call.Args[at].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				names = append(names, strings.Trim(lit.Value, `"`))
			}
			return true
		})
	}
	return names
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w*)\(`)

func testsOf(files []string) (names []string) {
	for _, text := range files {
		for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// wrongRepository is what the texts of TestWrongCommands are about.
func wrongRepository() fstest.MapFS {
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	return fstest.MapFS{
		"Makefile":         text("demo: ## Demo.\n\tgo run $(COUNT)\ntest:\n"),
		"a/a.go":           text("package a\n"),
		"a/a_test.go":      text("package a\n\nvar size = flag.Int(\"size\", 1, \"\")\n\nfunc TestA(t *testing.T) {}\n"),
		"cmd/x/main.go":    text("package main\n\nfunc main() { flag.IntVar(&n, \"n\", 1, \"\") }\n"),
		"GOOD.md":          text(""),
		"BAD.md":           text(""),
		"old/CHANGELOG.md": text("`make gone`\n"),
	}
}
