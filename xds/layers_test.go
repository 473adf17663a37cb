// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// layers are the parts of the package, from the bottom up, with the parts below that they use, besides
// core.
var layers = []struct {
	name  string
	uses  string
	files string
}{
	{"core", "", "core options faults keepbytes doc"},
	{"cache", "", "names entry addresses cache journal resourcestatus patched"},
	{"targets", "cache", "targets dependencymanager dependency plan cluster aggregate origin hashtables"},
	{"dns", "cache", "dns"},
	{"subscriptions", "cache", "serverstatus peer subscription absence ttl variant sotw delta splitresponse slots response"},
	{"session", "cache subscriptions", "session stream displaced"},
	{"pool", "cache subscriptions session", "server channel pool source"},
	{"authorities", "cache subscriptions session pool", "authority"},
	{"client", "cache targets dns subscriptions pool authorities", "acquire client view fetch status"},
}

// TestLayers checks that the files of a part refer to declarations of the same part and of the
// parts that it uses only.
func TestLayers(t *testing.T) {
	fset := token.NewFileSet()
	files := map[string]*ast.File{}
	declared := map[string]string{} // the part of each declaration
	for _, p := range layers {
		for name := range strings.FieldsSeq(p.files) {
			f, err := parser.ParseFile(fset, name+".go", nil, 0)
			kit.Must(t, err)
			files[name+".go"] = f
			for _, obj := range f.Scope.Objects {
				declared[obj.Name] = p.name
			}
		}
	}
	all, err := filepath.Glob("*.go")
	kit.Must(t, err)
	for _, name := range all {
		if !strings.HasSuffix(name, "_test.go") && files[name] == nil {
			t.Errorf("%s belongs to no part", name)
		}
	}
	for _, p := range layers {
		uses := append(strings.Fields(p.uses), p.name, "core", "")
		for name := range strings.FieldsSeq(p.files) {
			for _, id := range files[name+".go"].Unresolved {
				if of := declared[id.Name]; !slices.Contains(uses, of) {
					t.Errorf("%s: %s refers to %s of %s, which it does not use", fset.Position(id.Pos()), p.name, id.Name, of)
				}
			}
		}
	}
}
