// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package doccheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// root is the module's directory.
const root = "../.."

// TestNames checks that references exist. In Markdown these are the files and headings of
// links, and in backticks Go names of this module, tests, metrics and environment variables; in
// doc.go files, the package's files.
func TestNames(t *testing.T) {
	for _, fault := range wrongNames(t, os.DirFS(root)) {
		t.Error(fault)
	}
}

// TestWrongNames: the check accepts each kind of name that exists, and reports each that does not.
func TestWrongNames(t *testing.T) {
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	got := wrongNames(t, fstest.MapFS{
		"a/a.go":      text("package a\n\ntype T[X any] struct{ F int }\n\nfunc (*T[X]) M() {}\n\nconst C = \"GRPC_XDS\"\n\ntype I interface{ N() }\n"),
		"a/doc.go":    text("// Package a:\n//\n//\ta.go  is here\n//\tb.go  is not\n//\tc/d.go is elsewhere\npackage a\n"),
		"d/d.go":      text("package d\n\nimport \"a\"\n\ntype A = a.T\n"),
		"a/a_test.go": text("package a_test\n\nfunc TestA() {}\n"),
		"a/TEXT.md":   text("`T.M` `T.X`\n"),
		"GOOD.md": text("# Head, one\n[`T.M`](a/a.go) [`a.T.F`](a/a.go#L3) [f](a) [head](#head-one) [web](https://example.com) [more](MORE.md#more)\n" +
			"`a.C` `a.I.N` `a.T.M()` `d.A.F` `T.M` `TestA` `a.TestA` `other.Name` `x.go` `grpc.lb.picks` `xdslb_lb_picks_total` GRPC_XDS\n```go\n`a.Nothing`\n```\n<!-- `a.Nothing` -->\n"),
		"BAD.md":               text("[`T.X`](a/a.go)\n[x](b)\n[`C`](a/doc.go)\n[no](#two)\n[no](MORE.md#none)\n`a.X`\n`a.T.X`\n`T.X`\n`TestB`\n`b/a.TestC`\n`xdslb.lb.none`\nGRPC_NONE\n"),
		"MORE.md":              text("# More\n"),
		"integrate/METRICS.md": text("| `grpc.lb.picks` | x | `xdslb.lb.picks` |"),
		"CHANGELOG.md":         text("`a.Gone` [x](gone)\n"),
	})
	want := []string{"CHANGELOG.md:1", "a/TEXT.md:1", "a/doc.go:4"}
	for i := range 12 {
		want = append(want, fmt.Sprintf("BAD.md:%d", i+1))
	}
	for i, fault := range got {
		got[i] = strings.Join(strings.SplitN(fault, ":", 3)[:2], ":")
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("faults at\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// textsOf returns the module's Go and Markdown files.
func textsOf(t *testing.T, fsys fs.FS) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name != "." && strings.HasPrefix(d.Name(), ".") && name != ".github" || name == "bench/out"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go" && path.Ext(name) != ".md" && path.Ext(name) != ".tsv":
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		texts[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

var (
	link     = regexp.MustCompile("\\[([^\\]\n]+)\\]\\(([^)\\s]+)\\)")
	quoted   = regexp.MustCompile("`([^`\n]+)`")
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	goName   = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,2}$`)
	testName = regexp.MustCompile(`^(?:[a-z][\w/]*\.)?((?:Test|Benchmark|Fuzz|Example)(?:[A-Z_]\w*)?)$`)
	goFile   = regexp.MustCompile(`(?m)(?:^|[\s(,])([a-z0-9_]+\.go)\b`)
	metric   = regexp.MustCompile(`^(?:xdslb|grpc)[._](?:lb|client|xds_client)[._][a-z_.]*[a-z]$`)
	suffix   = regexp.MustCompile(`_(total|seconds|bucket|sum|count)$`) // of Prometheus
	variable = regexp.MustCompile(`\b(?:GRPC|XDSLB)_[A-Z_]*[A-Z]\b`)
	// block is a block of code, or a comment, of a Markdown file.
	block       = regexp.MustCompile("(?ms)^```.*?^```\n?|<!--.*?-->")
	punctuation = regexp.MustCompile(`[^a-z0-9_ -]`)
)

// foreign are environment variables that only grpc-go's own xDS client reads.
var foreign = []string{
	"GRPC_EXPERIMENTAL_PF_WEIGHTED_SHUFFLING", "GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE", "GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS",
	"GRPC_EXPERIMENTAL_XDS_DUALSTACK_ENDPOINTS", "GRPC_EXPERIMENTAL_XDS_EXT_PROC_ON_CLIENT", "GRPC_EXPERIMENTAL_XDS_GCP_AUTHENTICATION_FILTER",
	"GRPC_EXPERIMENTAL_XDS_HTTP_CONNECT", "GRPC_EXPERIMENTAL_XDS_MTLS_SPIFFE", "GRPC_EXPERIMENTAL_XDS_ORCA_LRS_PROPAGATION", "GRPC_EXPERIMENTAL_XDS_SNI",
	"GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS", "GRPC_RING_HASH_CAP",
}

// lineOf returns the number of the line that an offset in a text is in.
func lineOf(text string, offset int) int { return 1 + strings.Count(text[:offset], "\n") }

// wrongNames returns the references to missing names, with file and line.
func wrongNames(t *testing.T, fsys fs.FS) (faults []string) {
	t.Helper()
	texts := textsOf(t, fsys)
	c := newCode(fsys, texts)
	for name, text := range texts {
		report := func(offset int, what, fault string) {
			if fault != "" {
				faults = append(faults, fmt.Sprintf("%s:%d: %s: %s", name, lineOf(text, offset), what, fault))
			}
		}
		if path.Base(name) == "doc.go" {
			for _, m := range goFile.FindAllStringSubmatchIndex(text, -1) {
				if file := text[m[2]:m[3]]; texts[path.Join(path.Dir(name), file)] == "" {
					report(m[2], file, "no such file")
				}
			}
		}
		if path.Ext(name) != ".md" {
			continue
		}
		blank := func(s string) string { return regexp.MustCompile(`[^\n]`).ReplaceAllString(s, " ") }
		text = block.ReplaceAllStringFunc(text, blank)
		for _, m := range link.FindAllStringSubmatchIndex(text, -1) {
			report(m[0], text[m[0]:m[1]], c.link(name, text[m[2]:m[3]], text[m[4]:m[5]]))
		}
		if path.Base(name) == "CHANGELOG.md" {
			continue // it has previous names
		}
		for _, m := range variable.FindAllStringIndex(text, -1) {
			if v := text[m[0]:m[1]]; !slices.Contains(foreign, v) && !strings.Contains(c.all, `"`+v+`"`) {
				report(m[0], v, "no code reads this environment variable")
			}
		}
		unlinked := link.ReplaceAllStringFunc(text, blank)
		for _, m := range quoted.FindAllStringSubmatchIndex(unlinked, -1) {
			report(m[0], text[m[0]:m[1]], c.name(path.Dir(name), text[m[2]:m[3]]))
		}
	}
	return faults
}

// code has the declarations of the module's files.
type code struct {
	fsys    fs.FS
	texts   map[string]string
	all     string                     // all Go code
	files   map[string]map[string]bool // names that a file declares: "Name", "Type.Method", "Type.Field"
	folders map[string]string          // folders maps folders to packages, without commands
	pkgs    map[string]map[string]bool // names by package
	tests   map[string]bool
}

func newCode(fsys fs.FS, texts map[string]string) *code {
	c := &code{fsys, texts, "", map[string]map[string]bool{}, map[string]string{}, map[string]map[string]bool{}, map[string]bool{}}
	var aliases [][2]string // "package.Type", and the type of another package that it is an alias for
	for name, text := range texts {
		if path.Ext(name) != ".go" {
			continue
		}
		c.all += text
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			continue // the compiler reports it
		}
		c.files[name] = declared(file)
		switch pkg := file.Name.Name; {
		case strings.HasSuffix(name, "_test.go"):
			maps.Copy(c.tests, c.files[name])
		case pkg != "main" && name != "doc.go":
			c.folders[path.Dir(name)] = pkg
			if c.pkgs[pkg] == nil {
				c.pkgs[pkg] = map[string]bool{}
			}
			maps.Copy(c.pkgs[pkg], c.files[name])
			ast.Inspect(file, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok && spec.Assign.IsValid() {
					aliases = append(aliases, [2]string{pkg + "." + spec.Name.Name, types.ExprString(spec.Type)})
				}
				return true
			})
		}
	}
	for _, alias := range aliases {
		pkg, name, _ := strings.Cut(alias[0], ".")
		from, original, _ := strings.Cut(alias[1], ".")
		for declared := range maps.Clone(c.pkgs[from]) {
			if member, ok := strings.CutPrefix(declared, original+"."); ok {
				c.pkgs[pkg][name+"."+member] = true
			}
		}
	}
	return c
}

// declared returns the names that a file declares.
func declared(file *ast.File) map[string]bool {
	names := map[string]bool{}
	add := func(of string, list []*ast.Ident) {
		for _, n := range list {
			names[of+n.Name] = true
		}
	}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			of := ""
			if f.Recv != nil {
				of, _, _ = strings.Cut(strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*"), "[")
				of += "."
			}
			names[of+f.Name.Name] = true
		}
		d, _ := decl.(*ast.GenDecl)
		if d == nil {
			continue
		}
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				add("", spec.Names)
				for _, v := range spec.Values {
					add(spec.Names[0].Name+".", members(v))
				}
			case *ast.TypeSpec:
				names[spec.Name.Name] = true
				add(spec.Name.Name+".", members(spec.Type))
			}
		}
	}
	return names
}

// members returns the fields or methods of a type, or of a literal's type.
func members(e ast.Expr) (list []*ast.Ident) {
	fields := new(ast.FieldList)
	switch e := e.(type) {
	case *ast.CompositeLit:
		return members(e.Type)
	case *ast.StructType:
		fields = e.Fields
	case *ast.InterfaceType:
		fields = e.Methods
	}
	for _, f := range fields.List {
		list = append(list, f.Names...)
	}
	return list
}

// link returns the error of a link in a Markdown file, or "".
func (c *code) link(from, label, to string) string {
	if strings.Contains(to, "://") {
		return ""
	}
	to, anchor, _ := strings.Cut(to, "#")
	if to == "" {
		to = path.Base(from)
	}
	to = path.Join(path.Dir(from), to)
	if _, err := fs.Stat(c.fsys, to); err != nil {
		return "no such file"
	}
	if path.Ext(to) == ".md" && anchor != "" && !slices.ContainsFunc(heading.FindAllStringSubmatch(block.ReplaceAllString(c.texts[to], ""), -1), func(m []string) bool {
		return strings.ReplaceAll(punctuation.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-") == anchor
	}) {
		return "no such heading"
	}
	name := strings.TrimSuffix(strings.Trim(label, "`"), "()")
	if path.Ext(to) != ".go" || "`"+strings.Trim(label, "`")+"`" != label || !goName.MatchString(name) || path.Ext(name) == ".go" {
		return ""
	}
	if !c.files[to][name] && !c.files[to][strings.TrimPrefix(name, c.folders[path.Dir(to)]+".")] {
		return "the file does not declare it"
	}
	return ""
}

// name returns the error of a name in backticks, or "" if it does not belong to this module.
// Types of the folder's package need no qualifier; in a folder without a package they do.
func (c *code) name(folder, name string) string {
	name = strings.TrimSuffix(name, "()")
	if m := testName.FindStringSubmatch(name); m != nil {
		if !c.tests[m[1]] {
			return "no such test"
		}
		return ""
	}
	if metric.MatchString(name) {
		return c.metric(name)
	}
	first, rest, _ := strings.Cut(name, ".")
	if !goName.MatchString(name) || rest == "" || rest == "go" {
		return ""
	}
	here, declares := c.folders[folder], func(name string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(c.pkgs)), func(names map[string]bool) bool { return names[name] })
	}
	switch names, ok := c.pkgs[first]; {
	case ok && !names[rest], !ok && here != "" && c.pkgs[here][first] && !c.pkgs[here][name], !ok && here == "" && declares(first) && !declares(name):
		return "no package declares it"
	}
	return ""
}

// metric returns the error of a metric's name, which may be in Prometheus' format.
func (c *code) metric(name string) string {
	for dots := strings.NewReplacer("_", ".").Replace; ; {
		for _, m := range quoted.FindAllStringSubmatch(c.texts["integrate/METRICS.md"], -1) {
			if m[1] == name || dots(m[1]) == dots(name) && strings.HasPrefix(name, "xdslb_") {
				return ""
			}
		}
		if !strings.HasPrefix(name, "xdslb_") || !suffix.MatchString(name) {
			return "integrate/METRICS.md has no such metric"
		}
		name = suffix.ReplaceAllString(name, "")
	}
}
