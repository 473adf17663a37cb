// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package doccheck

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestConformanceFiles: the files that make conformance adds to grpc-go compile.
func TestConformanceFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command")
	}
	for _, name := range []string{"shim.go.txt", "retry.go.txt"} { // bridge.go.txt uses no names of this module
		src, err := os.ReadFile(filepath.Join(root, "bench/conformance", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := typeCheck(name, string(src)); err != nil {
			t.Error(err)
		}
	}
	const renamed = "package p\n\nimport \"github.com/xdslb/xdslb/integrate\"\n\nvar _ = integrate.NoSuchName\n"
	if err := typeCheck("renamed.go", renamed); err == nil || !strings.Contains(err.Error(), "renamed.go:5:") || !strings.Contains(err.Error(), "NoSuchName") {
		t.Errorf("an undefined name is reported as %v", err)
	}
}

// typeCheck type-checks a file. Unlike the compiler, it permits imports of internal packages.
func typeCheck(name, src string) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return err
		}
		args = append(args, path)
	}
	list := exec.Command("go", args...)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = errors.New(string(failed.Stderr))
		}
		return err
	}
	exported := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, data, _ := strings.Cut(strings.TrimSpace(line), " ")
		exported[path] = data
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exported[path]) }
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	_, err = conf.Check(file.Name.Name, fset, []*ast.File{file}, nil)
	return err
}
