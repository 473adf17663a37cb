// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command api holds the exported API of the stable packages against what is recorded in
// .ci/api, a file for each package and a line for each thing that a program can use. It
// fails when a line that is recorded is not true any more, which breaks programs. What is
// new breaks none, and is recorded with a release:
//
//	api       compares
//	api -w    records
//
// Why lines, and not golang.org/x/exp/apidiff: it compares with export data, which only the
// compiler that wrote it reads, or with the sources of a version, which have to be built.
// Lines last, and a reviewer sees them change. The rules come to the same but where a line
// is stricter: any change of a type counts, even to one that accepts what the old one did.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/xdslb/xdslb/"

// stable are the packages that integrate/docs/versioning.md calls so.
var stable = []string{
	"integrate",
	"integrate/attemptlabels",
	"integrate/debug",
	"integrate/probe",
	"integrate/prometheus",
	"integrate/stockmetrics",
	"integrate/stockmetrics/withstock",
	"xds/csds",
	"xds/lbpolicy",
	"xds/xdstest",
}

// borrowed are the types of experimental packages that are stable, since stable packages
// take or return them.
var borrowed = map[string][]string{"picker": {"LocalityID", "Metadata"}}

// lent are other types that stable packages take or return, and that stay experimental.
var lent = []string{"picker.Config", "picker.Policy"}

func main() {
	write := flag.Bool("w", false, "record the API as it is")
	dir := flag.String("dir", ".ci/api", "where it is recorded")
	flag.Parse()
	if err := run(*dir, *write); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string, write bool) error {
	names := append(slices.Sorted(maps.Keys(borrowed)), stable...)
	packages, err := load(names)
	if err != nil {
		return err
	}
	var broken []string
	for i, name := range names {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+".txt")
		lines := list(packages[i])
		if types := borrowed[name]; types != nil {
			lines = slices.DeleteFunc(lines, func(line string) bool { return !slices.Contains(types, typeOf(line)) })
		}
		broken = append(broken, foreign(name, lines)...)
		if write {
			if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
				return err
			}
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("api: %w; make api records it", err)
		}
		for _, line := range gone(strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' }), lines) {
			broken = append(broken, name+": "+line)
		}
	}
	if len(broken) > 0 {
		return fmt.Errorf("api: the exported API has changed in a way that breaks programs:\n\n%s\n\n"+
			"If that is meant, say so in CHANGELOG.md under Incompatible, and record it with make api", strings.Join(broken, "\n"))
	}
	return nil
}

// typeOf returns the type that a line is about, or "".
func typeOf(line string) string {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "type":
		return rest[:strings.IndexAny(rest, " ,[")]
	case "method":
		return strings.TrimLeft(rest[:strings.IndexAny(rest, ")[")], "(*")
	}
	return ""
}

var ofModule = regexp.MustCompile(regexp.QuoteMeta(module) + `([a-z0-9/]+)\.(\w+)`)

// foreign returns the lines with types of this module that are neither stable nor known not
// to be.
func foreign(name string, lines []string) (faults []string) {
	for _, line := range lines {
		for _, m := range ofModule.FindAllStringSubmatch(line, -1) {
			if !slices.Contains(stable, m[1]) && !slices.Contains(borrowed[m[1]], m[2]) && !slices.Contains(lent, m[1]+"."+m[2]) {
				faults = append(faults, fmt.Sprintf("%s: \n  ? %s\n    %s.%s is not stable", name, line, m[1], m[2]))
			}
		}
	}
	return faults
}

// gone returns the recorded lines that the API does not have any more, and what it has
// instead.
func gone(recorded, api []string) (faults []string) {
	for _, line := range recorded {
		if slices.Contains(api, line) {
			continue
		}
		fault := "\n  - " + line
		for _, now := range api {
			if subject(now) == subject(line) && !slices.Contains(recorded, now) {
				fault += "\n  + " + now
			}
		}
		faults = append(faults, fault)
	}
	return faults
}

// subject returns what a line is about: the kind and the name, without the type.
func subject(line string) string {
	kind, rest, _ := strings.Cut(line, " ")
	if at := strings.Index(rest, ", field "); at >= 0 {
		name, _, _ := strings.Cut(rest[at+len(", field "):], " ")
		return kind + " " + rest[:at] + "." + name
	}
	if kind == "method" { // method (*T) M(...)
		at := strings.Index(rest, ") ")
		return rest[:at] + rest[at:at+strings.IndexByte(rest[at+2:], '(')+2]
	}
	name, _, _ := strings.Cut(rest, " ")
	name, _, _ = strings.Cut(name, "(")
	return kind + " " + name
}

// load returns packages of the module, from the export data that the compiler has made.
func load(names []string) ([]*types.Package, error) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export"}
	for _, name := range names {
		args = append(args, "./"+name)
	}
	var stderr bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("api: go list: %w\n%s", err, &stderr)
	}
	files := make(map[string]string)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		files[p.ImportPath] = p.Export
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	var list []*types.Package
	for _, name := range names {
		p, err := from.Import(module + name)
		if err != nil {
			return nil, fmt.Errorf("api: %s: %w", name, err)
		}
		list = append(list, p)
	}
	return list, nil
}
