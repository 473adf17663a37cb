// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun changes a checkout with two of the packages, and checks which changes are errors
// and that accepting them makes the check pass.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write("go.mod", "module github.com/xdslb/xdslb\n\ngo 1.26.0\n")
	write("integrate/a.go", "package integrate\n\ntype Config struct{ A int }\n\nfunc F(a int) {}\n")
	write("picker/a.go", "package picker\n\ntype Metadata struct{ A int }\n\ntype Snapshot struct{ A int }\n\nfunc (Metadata) M() {}\n")
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "base")
	write(".ci/api", git("rev-parse", "HEAD")+"\n")

	write("integrate/a.go", "package integrate\n\ntype Config struct{ A, B int }\n\nfunc F(a int) {}\n\nfunc G() {}\n")
	write("picker/a.go", "package picker\n\ntype Metadata struct{ A int }\n\ntype Snapshot struct{}\n\nfunc (Metadata) M() {}\n")
	if err := run(dir, false); err != nil {
		t.Errorf("after additions and a change of an experimental type: %v, want no error", err)
	}

	write("integrate/a.go", "package integrate\n\ntype Config struct{ A string }\n\nfunc F(a ...int) {}\n")
	write("picker/a.go", "package picker\n\ntype Metadata struct{ A int }\n")
	err := run(dir, false)
	for _, want := range []string{"integrate: Config.A: changed", "integrate: F: changed", "picker: Metadata.M: removed", "CHANGELOG.md", "make api"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("after incompatible changes: %v, want an error with %q", err, want)
		}
	}
	if err := run(dir, true); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, false); err != nil {
		t.Errorf("after accepting the changes: %v, want no error", err)
	}

	write("integrate/a.go", "package integrate\n\nfunc F(a) {}\n")
	if err := run(dir, false); err == nil || !strings.Contains(err.Error(), "undefined: a") {
		t.Errorf("with code that does not compile: %v, want its error", err)
	}
	write(".ci/api", "0123456789012345678901234567890123456789\n")
	if err := run(dir, false); err == nil || !strings.Contains(err.Error(), "base commit 0123") {
		t.Errorf("with an unknown base commit: %v, want an error that names it", err)
	}
	if trees := git("worktree", "list"); strings.Contains(trees, "\n") {
		t.Errorf("work trees left behind:\n%s", trees)
	}
}

// TestIncomplete: a source archive and a shallow clone pass without a comparison, and cannot accept
// changes; a clone with the whole history has to have the base commit.
func TestIncomplete(t *testing.T) {
	temp := t.TempDir()
	whole, shallow := filepath.Join(temp, "whole"), filepath.Join(temp, "shallow")
	archive := filepath.Join(whole, "archive") // within another repository
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", temp, "-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", whole)
	for range 2 {
		git("-C", whole, "commit", "-q", "--allow-empty", "-m", "empty")
	}
	git("clone", "-q", "--depth", "1", "file://"+whole, shallow)
	base := git("-C", whole, "rev-parse", "HEAD~1")
	if err := os.MkdirAll(filepath.Join(archive, ".ci"), 0o777); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{whole: "", shallow: "shallow clone", archive: "not a clone"} {
		for _, commit := range []string{base, "0123456789012345678901234567890123456789"} {
			if got := incomplete(dir, commit); (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s without commit %s: %q, want %q", dir, commit, got, want)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(archive, ".ci", "api"), []byte(base+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := run(archive, false); err != nil {
		t.Error(err)
	}
	if err := run(archive, true); err == nil {
		t.Error("the changes since a commit that is not there are accepted")
	}
}
