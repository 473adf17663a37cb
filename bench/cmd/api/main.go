// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command api compares the exported API of the stable packages with that of a base commit,
// using golang.org/x/exp/apidiff. Both are type-checked from source. It fails on an
// incompatible change that .ci/api does not list:
//
//	api       compares
//	api -w    lists the incompatible changes since the base commit
//
// Without that commit there is nothing to compare with: in a shallow clone and outside of a clone it
// prints a line that says so, and succeeds.
//
// The first line of .ci/api names the base commit, each further line an accepted change. A
// release moves the base to its tag. Command api is a separate module, so that the library does
// not require its dependencies.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"
)

const module = "github.com/xdslb/xdslb/"

// stable lists the packages that integrate/docs/versioning.md calls stable.
var stable = []string{
	"integrate",
	"integrate/attemptlabels",
	"integrate/debug",
	"integrate/probe",
	"integrate/report",
	"integrate/stockmetrics",
	"integrate/stockmetrics/withstock",
	"xds/csds",
	"xds/lbpolicy",
	"xds/xdstest",
}

// partial lists the stable types of packages that are otherwise experimental.
var partial = map[string][]string{"picker": {"LocalityID", "Metadata"}}

func main() {
	write := flag.Bool("w", false, "accept the incompatible changes since the base commit")
	dir := flag.String("C", ".", "`directory` of the checkout")
	flag.Parse()
	if err := run(*dir, *write); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(dir string, write bool) error {
	file := filepath.Join(dir, ".ci", "api")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	base, accepted := lines[0], lines[1:]
	if reason := incomplete(dir, base); reason != "" {
		if write {
			return errors.New(reason)
		}
		fmt.Printf("api: NOT CHECKED: %s\n", reason)
		return nil
	}
	old, remove, err := checkout(dir, base)
	if err != nil {
		return err
	}
	defer remove()
	changes, err := compare(old, dir)
	if err != nil {
		return err
	}
	if write {
		return os.WriteFile(file, []byte(strings.Join(append([]string{base}, changes...), "\n")+"\n"), 0o644)
	}
	changes = slices.DeleteFunc(changes, func(c string) bool { return slices.Contains(accepted, c) })
	if len(changes) > 0 {
		return fmt.Errorf("incompatible changes since %s:\n\n%s\n\nIf they are intended, describe them in CHANGELOG.md and run make api",
			base, strings.Join(changes, "\n"))
	}
	return nil
}

// incomplete returns why dir cannot have a commit of its past, or "" if it should: a source archive and
// a shallow clone have none.
func incomplete(dir, commit string) string {
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	if prefix, err := git("rev-parse", "--show-prefix"); err != nil || prefix != "" {
		return "this is not a clone of the repository"
	}
	if shallow, _ := git("rev-parse", "--is-shallow-repository"); shallow == "true" {
		if _, err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
			return "this is a shallow clone without commit " + commit
		}
	}
	return ""
}

// checkout makes a work tree of a commit, and returns its directory and a function to remove
// it.
func checkout(dir, commit string) (tree string, remove func(), err error) {
	temp, err := os.MkdirTemp("", "api")
	if err != nil {
		return "", nil, err
	}
	tree = filepath.Join(temp, "base")
	git := func(args ...string) error {
		out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
		return err
	}
	remove = func() {
		_ = git("worktree", "remove", "--force", tree)
		_ = os.RemoveAll(temp)
	}
	if err := git("worktree", "add", "--detach", tree, commit); err != nil {
		remove()
		return "", nil, fmt.Errorf("base commit %s: %w", commit, err)
	}
	return tree, remove, nil
}

// compare returns the incompatible changes of the stable packages, sorted, with one line for
// each.
func compare(old, new string) ([]string, error) {
	before, err := load(old)
	if err != nil {
		return nil, err
	}
	after, err := load(new)
	if err != nil {
		return nil, err
	}
	var changes []string
	for path, p := range before {
		name := strings.TrimPrefix(path, module)
		if after[path] == nil {
			changes = append(changes, name+": package removed")
			continue
		}
		for _, c := range apidiff.Changes(p.Types, after[path].Types).Changes {
			if !c.Compatible && covered(name, c.Message) {
				changes = append(changes, name+": "+c.Message)
			}
		}
	}
	slices.Sort(changes)
	return changes, nil
}

// covered reports whether a change of a package affects its stable part. A message starts with
// the changed name: "Metadata.Get: removed".
func covered(name, message string) bool {
	types := partial[name]
	subject, _, _ := strings.Cut(message, ":")
	subject, _, _ = strings.Cut(strings.TrimLeft(subject, "(*"), ".")
	return types == nil || slices.Contains(types, strings.TrimSuffix(subject, ")"))
}

// load type-checks the existing packages of a checkout, by path.
func load(dir string) (map[string]*packages.Package, error) {
	var patterns []string
	for _, name := range stable {
		patterns = append(patterns, module+name)
	}
	for name := range partial {
		patterns = append(patterns, module+name)
	}
	mode := packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps
	list, err := packages.Load(&packages.Config{Mode: mode, Dir: dir}, patterns...)
	if err != nil {
		return nil, err
	}
	loaded := make(map[string]*packages.Package)
	for _, p := range list {
		missing := len(p.GoFiles) == 0
		if !missing {
			loaded[p.PkgPath] = p
		}
		for _, fault := range p.Errors {
			if !missing {
				err = cmp.Or(err, errors.New(fault.Error()))
			}
		}
	}
	return loaded, err
}
