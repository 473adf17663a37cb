// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package doccheck

import (
	"encoding/json"
	"errors"
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

	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/overlay"
	"github.com/xdslb/xdslb/xds/resource"
)

func init() { // of integrate/kubernetes, a module that this one cannot import
	xds.RegisterSource("kubernetes", func(uri string) (xds.Source, error) { return nil, errors.New(uri + " is not available") })
}

// TestCode: in Markdown files each block of Go compiles, in this module, and each block of JSON is a
// bootstrap, an overlay or a resource that is accepted.
func TestCode(t *testing.T) {
	var list []snippet
	for name, text := range textsOf(t, os.DirFS(root)) {
		if path.Ext(name) != ".md" {
			continue
		}
		list = append(list, snippets(name, text)...)
		for _, m := range document.FindAllStringSubmatchIndex(text, -1) {
			if err := accept(text[m[2]:m[3]]); err != nil {
				t.Errorf("%s:%d: %v", name, lineOf(text, m[2]), err)
			}
		}
	}
	if testing.Short() {
		return // the rest runs the go command
	}
	if len(list) == 0 {
		t.Fatal("no Go in Markdown files; README.md has some")
	}
	for _, fault := range compile(t, list) {
		t.Error(fault)
	}
}

// TestWrongCode: a fragment may lack imports and a function around it; faults are reported by line.
func TestWrongCode(t *testing.T) {
	for _, text := range []string{`{`, `{}`, `{"xds_servers": []}`, `{"patches": [{}]}`, `{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c", "type": "EDS"}`} {
		if accept(text) == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	if testing.Short() {
		t.Skip("runs the go command")
	}
	const text = "<!-- given: creds credentials.TransportCredentials -->\n" +
		"```go\ncc, err := integrate.NewClient(\"xds:///a\", grpc.WithTransportCredentials(creds))\n" +
		"if err != nil {\n\treturn err\n}\n```\n" +
		"```go\nimport \"fmt\"\n\ntype t struct{}\n\nfunc (t) String() string { return fmt.Sprint(1) }\n```\n" +
		"```go\npackage main\n\nfunc main() {}\n```\n" +
		"```\nx := := y\n```\n" +
		"```go\nopts := append([]grpc.DialOption{}, integrate.DialOptions(integrate.Config{})...)\n```\n" +
		"```go\nx := := y\n```\n"
	faults := compile(t, snippets("TEXT.md", text))
	if len(faults) != 2 || !strings.Contains(faults[0], "TEXT.md:27: ") || !strings.Contains(faults[1], "TEXT.md:24:") {
		t.Errorf("faults are %q, want one in line 27 and one in line 24", faults)
	}
}

var document = regexp.MustCompile("(?ms)^```json\n(.*?)^```")

// accept returns why a block of JSON is neither a bootstrap, nor an overlay, nor a resource.
func accept(text string) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &keys); err != nil {
		return err
	}
	if keys["xds_servers"] != nil {
		_, err := integrate.NewBuilder(integrate.Config{Bootstrap: []byte(text)})
		return err
	}
	if keys["patches"] != nil {
		_, err := overlay.Parse("document", []byte(text))
		return err
	}
	var a anypb.Any
	if err := protojson.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	kind, ok := resource.TypeOf(a.GetTypeUrl())
	if !ok {
		return errors.New("neither a bootstrap (xds_servers), nor an overlay (patches), nor a resource (@type)")
	}
	anyInstance := func(string, resource.CertUse) error { return nil }
	_, err := resource.Decode(kind, a.GetValue(), resource.Options{CertProvider: anyInstance})
	return err
}

// A snippet is a block of Go.
type snippet struct {
	file string
	line int // of its first line of Go
	text string
	// given are the variables that a fragment uses, as parameters of a function:
	// "<!-- given: opts []grpc.DialOption -->" above the block.
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
	"github.com/xdslb/xdslb/integrate/debug", "github.com/xdslb/xdslb/integrate/report", "github.com/xdslb/xdslb/xds", "github.com/xdslb/xdslb/xds/xdstest",
}

// source returns a file of package p with the snippet: unchanged if it is a whole file,
// otherwise after its imports and the imports of known packages that it uses, as declarations
// or, if it has none, in a function that returns an error. Compilers report the lines of the
// Markdown file.
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

// harmless is a line of the compiler that a fragment may cause: it need not use its variables.
var harmless = regexp.MustCompile(`: declared and not used: |^# `)

// compile returns the compiler's errors about the snippets.
func compile(t *testing.T, list []snippet) (faults []string) {
	t.Helper()
	files := map[string]string{}
	for i, s := range list {
		text, err := s.source()
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		files[fmt.Sprintf("snippet%d", i)] = text
	}
	out, err := build(t, files, "-gcflags=-e")
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "" && !harmless.MatchString(line) {
			faults = append(faults, line)
		}
	}
	if err != nil && out == "" {
		t.Fatal(err)
	}
	return faults
}

// build runs go build with packages of this module that exist in an overlay only: each has a folder
// and the text of its file. It returns the output.
func build(t *testing.T, packages map[string]string, args ...string) (out string, err error) {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	overlay := map[string]map[string]string{"Replace": {}}
	for folder, text := range packages {
		overlay["Replace"][filepath.Join(here, folder, "main.go")] = write(folder+".go", text)
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"build", "-overlay", write("overlay.json", string(text))}, args...)
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		args = append(args, "./"+folder)
	}
	output, err := exec.Command("go", args...).CombinedOutput()
	return string(output), err
}
