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
	"strings"
	"testing"
	"testing/fstest"
)

// TestReferences: what texts name exists. In Markdown these are the files and
// headings behind links, Go names in links to Go files, names of this module's
// packages in backticks, and tests. In the documentation of packages they are the
// package's files.
func TestReferences(t *testing.T) { noFaults(t, danglingReferences) }

// The check takes each kind of reference that holds, and sees each that does not.
func TestDanglingReferences(t *testing.T) {
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	got, err := danglingReferences(fstest.MapFS{
		"a/a.go":      text("package a\n\ntype T struct{ F int }\n\nfunc (*T) M() {}\n\nfunc f() {}\n\nconst C = 1\n\ntype I interface{ N() }\n"),
		"a/doc.go":    text("// Package a:\n//\n//\ta.go  is here\n//\tb.go  is not\n//\tc/d.go is elsewhere\npackage a\n"),
		"a/a_test.go": text("package a_test\n\nfunc TestA() {}\n"),
		"a/TEXT.md":   text("`T.M` `T.X`\n"),
		"TEXT.md": text("# Head, one\n[`T.M`](a/a.go) [`a.T.F`](a/a.go#L3) [f](a) [`f`](a/a.go) [head](#head-one) [web](https://example.com)\n" +
			"`a.C` `a.I.N` `a.T.M()` `T.M` `TestA` `other.Name` `v1.2` `x.go`\n" +
			"```go\n`a.Nothing`\n```\n<!-- `a.Nothing` -->" +
			"[`T.X`](a/a.go) [`g`](a/a.go) [x](b) [`C`](a/doc.go) [no](#two)\n`a.X` `a.T.X` `T.X` `TestB`\n" +
			"[no](MORE.md#none) [yes](MORE.md#more) `a.TestA` `b/a.TestC` `a.TestC`\n"),
		"MORE.md":      text("# More\n"),
		"CHANGELOG.md": text("`a.Gone` [x](gone)\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"TEXT.md:7: [x](b): there is no such file",
		"TEXT.md:7: [`C`](a/doc.go): the file does not declare it",
		"TEXT.md:7: [`T.X`](a/a.go): the file does not declare it",
		"TEXT.md:7: [`g`](a/a.go): the file does not declare it",
		"TEXT.md:7: [no](#two): there is no such heading",
		"TEXT.md:8: `T.X`: no package declares it",
		"TEXT.md:8: `TestB`: there is no such test",
		"TEXT.md:8: `a.T.X`: package a does not declare it",
		"TEXT.md:8: `a.X`: package a does not declare it",
		"TEXT.md:9: [no](MORE.md#none): the file has no such heading",
		"TEXT.md:9: `a.TestC`: there is no such test",
		"TEXT.md:9: `b/a.TestC`: there is no such test",
		"a/TEXT.md:1: `T.X`: package a does not declare it",
		"a/doc.go:4: b.go: there is no such file",
		"CHANGELOG.md:1: [x](gone): there is no such file",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

var (
	link    = regexp.MustCompile("\\[([^\\]\n]+)\\]\\(([^)\\s]+)\\)")
	quoted  = regexp.MustCompile("`([^`\n]+)`")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	goName  = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,2}$`)
	// qualified is a test with its package: "xds/resource.TestRefused".
	qualified = regexp.MustCompile(`^[a-z][\w/]*\.\w+$`)
	testName  = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)([A-Z_]\w*)?$`)
	file      = regexp.MustCompile(`(?m)(?:^|[\s(,])([a-z0-9_]+\.go)\b`)
)

// danglingReferences returns what is referred to and does not exist, with the lines.
func danglingReferences(fsys fs.FS) (faults []string, err error) {
	texts, err := textsOf(fsys)
	if err != nil {
		return nil, err
	}
	known := newDeclarations(texts)
	own, err := fs.Glob(fsys, "bench/house/*_test.go") // which sources leaves out
	if err != nil {
		return nil, err
	}
	for _, name := range own {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		known.add(name, string(text))
	}
	for name, text := range texts {
		at := func(offset int, format string, args ...any) {
			faults = append(faults, faultAt(name, text, offset, format, args...))
		}
		switch {
		case path.Ext(name) == ".md":
			// What code blocks and comments have is no reference, but they count as lines.
			text = proseOf(text)
			for _, m := range link.FindAllStringSubmatchIndex(text, -1) {
				if fault := known.link(fsys, name, text, text[m[2]:m[3]], text[m[4]:m[5]]); fault != "" {
					at(m[0], "%s: %s", text[m[0]:m[1]], fault)
				}
			}
			if path.Base(name) == "CHANGELOG.md" {
				continue // which has names that were
			}
			unlinked := link.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat(" ", len(s)) })
			for _, m := range quoted.FindAllStringSubmatchIndex(unlinked, -1) {
				if fault := known.name(path.Dir(name), text[m[2]:m[3]]); fault != "" {
					at(m[0], "%s: %s", text[m[0]:m[1]], fault)
				}
			}
		case path.Base(name) == "doc.go":
			for _, m := range file.FindAllStringSubmatchIndex(text, -1) {
				if _, err := fs.Stat(fsys, path.Join(path.Dir(name), text[m[2]:m[3]])); err != nil {
					at(m[2], "%s: there is no such file", text[m[2]:m[3]])
				}
			}
		}
	}
	return faults, nil
}

// declarations are the names that Go files declare: "Name", "Type.Method" and
// "Type.Field".
type declarations struct {
	byFile    map[string]map[string]bool
	byPackage map[string]map[string]bool // by name; commands are none
	ofFolder  map[string]string          // the name of a folder's package
	tests     map[string]bool
}

func newDeclarations(texts map[string]string) *declarations {
	d := &declarations{map[string]map[string]bool{}, map[string]map[string]bool{}, map[string]string{}, map[string]bool{}}
	for name, text := range texts {
		if path.Ext(name) == ".go" {
			d.add(name, text)
		}
	}
	return d
}

// add adds the names of a file.
func (d *declarations) add(name, text string) {
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		return // the compiler's business
	}
	names, pkg := declared(file), file.Name.Name
	d.byFile[name] = names
	switch {
	case strings.HasSuffix(name, "_test.go"):
		maps.Copy(d.tests, names)
	case pkg != "main":
		d.ofFolder[path.Dir(name)] = pkg
		if d.byPackage[pkg] == nil {
			d.byPackage[pkg] = map[string]bool{}
		}
		maps.Copy(d.byPackage[pkg], names)
	}
}

// declared returns the names that a file declares.
func declared(file *ast.File) map[string]bool {
	names := make(map[string]bool)
	members := func(of string, list *ast.FieldList) {
		for _, f := range list.List {
			for _, n := range f.Names {
				names[of+n.Name] = true
			}
		}
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			receiver := ""
			if decl.Recv != nil {
				receiver = typeOf(decl.Recv.List[0].Type) + "."
			}
			names[receiver+decl.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names[spec.Name.Name] = true
					switch t := spec.Type.(type) {
					case *ast.StructType:
						members(spec.Name.Name+".", t.Fields)
					case *ast.InterfaceType:
						members(spec.Name.Name+".", t.Methods)
					}
				case *ast.ValueSpec:
					for i, n := range spec.Names {
						names[n.Name] = true
						if i < len(spec.Values) {
							if lit, ok := spec.Values[i].(*ast.CompositeLit); ok {
								if t, ok := lit.Type.(*ast.StructType); ok {
									members(n.Name+".", t.Fields)
								}
							}
						}
					}
				}
			}
		}
	}
	return names
}

// typeOf returns the name of a receiver's type.
func typeOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeOf(e.X)
	case *ast.IndexExpr:
		return typeOf(e.X)
	case *ast.IndexListExpr:
		return typeOf(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// link returns what is wrong with a link of a Markdown file, or "".
func (d *declarations) link(fsys fs.FS, from, text, label, to string) string {
	if strings.Contains(to, "://") {
		return ""
	}
	to, anchor, _ := strings.Cut(to, "#")
	if to == "" {
		if !hasHeading(text, anchor) {
			return "there is no such heading"
		}
		return ""
	}
	to = path.Join(path.Dir(from), to)
	if _, err := fs.Stat(fsys, to); err != nil {
		return "there is no such file"
	}
	if path.Ext(to) == ".md" && anchor != "" {
		there, err := fs.ReadFile(fsys, to)
		if err != nil || !hasHeading(string(there), anchor) {
			return "the file has no such heading"
		}
	}
	name, ok := unquote(label)
	if path.Ext(to) != ".go" || !ok || !goName.MatchString(name) || path.Ext(name) == ".go" {
		return ""
	}
	pkg, rest, _ := strings.Cut(name, ".")
	if d.byFile[to][name] || pkg == d.ofFolder[path.Dir(to)] && d.byFile[to][rest] {
		return ""
	}
	return "the file does not declare it"
}

// hasHeading reports whether a Markdown file has a heading with the given anchor.
func hasHeading(text, anchor string) bool {
	text = block.ReplaceAllString(text, "")
	return slices.ContainsFunc(heading.FindAllStringSubmatch(text, -1), func(m []string) bool { return anchorOf(m[1]) == anchor })
}

// name returns what is wrong with a name in backticks, or "" if it is none of
// this module's. The types of the folder's package need no qualifier; in a folder
// without a package no types do.
func (d *declarations) name(folder, name string) string {
	name = strings.TrimSuffix(name, "()")
	switch test := name[strings.LastIndex(name, ".")+1:]; {
	case testName.MatchString(test) && (test == name || qualified.MatchString(name)):
		if !d.tests[test] {
			return "there is no such test"
		}
	case goName.MatchString(name) && strings.Contains(name, "."):
		first, rest, _ := strings.Cut(name, ".")
		here := d.ofFolder[folder]
		switch names, ok := d.byPackage[first]; {
		case ok && !names[rest] && !testName.MatchString(rest) && rest != "go":
			return fmt.Sprintf("package %s does not declare it", first)
		case !ok && here != "" && d.byPackage[here][first] && !d.byPackage[here][name]:
			return fmt.Sprintf("package %s does not declare it", here)
		case !ok && here == "" && d.anywhere(first) && !d.anywhere(name):
			return "no package declares it"
		}
	}
	return ""
}

// anywhere reports whether a package declares a name.
func (d *declarations) anywhere(name string) bool {
	for _, names := range d.byPackage {
		if names[name] {
			return true
		}
	}
	return false
}

// unquote returns what is in backticks, if all of a text is.
func unquote(s string) (string, bool) {
	m := quoted.FindStringSubmatch(s)
	if m == nil || m[0] != s {
		return "", false
	}
	return strings.TrimSuffix(m[1], "()"), true
}

// anchorOf returns the anchor that a heading gets: its words in lower case, with
// hyphens, without punctuation.
func anchorOf(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		}
	}
	return b.String()
}
