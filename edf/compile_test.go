// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// build returns the compiler's output for the package with flags.
func build(t *testing.T, flags string) string {
	t.Helper()
	if testing.Short() || raceEnabled || runtime.GOARCH != "amd64" {
		t.Skip("builds the package for amd64")
	}
	out, err := exec.Command("go", "build", "-gcflags="+flags, ".").CombinedOutput()
	if err != nil {
		t.Skipf("go build: %v\n%s", err, out)
	}
	return string(out)
}

// A pick is one or two calls; its parts must be inlined.
func TestInlining(t *testing.T) {
	out := build(t, "-m")
	for _, name := range []string{
		"(*queue).replay",
		"(*Schedule).position",
		"(*class).advance",
		"(*table).load",
		"wideKey.less",
	} {
		if !strings.Contains(out, "can inline "+name+"\n") {
			t.Errorf("%s is not inlined", name)
		}
	}
}

// The cost of bounds checks in a pick is not measurable while there are no more than these: one
// for the buffer, and for a queue one for the winner, two for its endpoint and class, and one in
// the replay. The compiler reports the ones of an inlined function at the call.
func TestBoundsChecks(t *testing.T) {
	checks := make(map[string]int)
	function := functions(t)
	for _, m := range regexp.MustCompile(`\./(\w+\.go):(\d+):\d+: Found Is\w+`).FindAllStringSubmatch(build(t, "-d=ssa/check_bce"), -1) {
		line, _ := strconv.Atoi(m[2])
		checks[function(m[1], line)]++
	}
	if len(checks) == 0 {
		t.Fatal("the compiler reports no bounds checks at all")
	}
	for name, most := range map[string]int{"(*Schedule).At": 1, "(*queue).next": 4} {
		if got := checks[name]; got > most {
			t.Errorf("%s has %d bounds checks, want at most %d", name, got, most)
		}
	}
}

// functions returns a look-up from a source line to the name of the function around it.
func functions(t *testing.T) func(file string, line int) string {
	t.Helper()
	files := make(map[string]*ast.File)
	set := token.NewFileSet()
	return func(file string, line int) string {
		if files[file] == nil {
			f, err := parser.ParseFile(set, file, nil, 0)
			kit.Must(t, err)
			files[file] = f
		}
		for _, d := range files[file].Decls {
			if f, ok := d.(*ast.FuncDecl); ok && set.Position(f.Pos()).Line <= line && line <= set.Position(f.End()).Line {
				if f.Recv == nil {
					return f.Name.Name
				}
				return "(" + types.ExprString(f.Recv.List[0].Type) + ")." + f.Name.Name
			}
		}
		return ""
	}
}

// Leaves of the house import the standard library only: they are meant to be usable without
// gRPC, protobuf or anything else.
func TestImports(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("runs the go command")
	}
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Skipf("go list: %v", err)
	}
	for _, path := range strings.Fields(string(out)) {
		if !strings.HasSuffix(path, "/edf") {
			t.Errorf("imports %s", path)
		}
	}
}
