// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package doccheck

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRelease: .ci/release writes the notes of a version and its bill of materials, and rejects
// invalid versions, versions that CHANGELOG.md lacks, figures of other code, and checkouts with changes.
func TestRelease(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "release")
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	run := func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		// The bill of materials comes from a module that tests do not download.
		cmd.Env = append(os.Environ(), "GO="+filepath.Join(dir, ".ci/go"))
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	script := write(".ci/release", read(t, ".ci/release"), 0o700)
	write(".ci/go", "#!/bin/sh\necho \"$@\" >"+out+"/sbom.cdx.json\n", 0o700)
	write("CHANGELOG.md", "# Changelog\n\n## [0.2.0] - 2027-01-02\n\n- two\n\n## [0.1.0] - 2026-12-01\n\n- one\n", 0o600)
	write("integrate/kubernetes/go.mod", "require (\n\tgithub.com/xdslb/xdslb v0.2.0\n)\n", 0o600)
	write(".ci/figures", read(t, ".ci/figures"), 0o700)
	write(".github/MAINTAINERS.md", "# Maintainers\n\n| name | contact |\n|---|---|\n| A | a@example.com |\n", 0o600)
	commit := func() string {
		t.Helper()
		for _, args := range [][]string{{"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "a"}} {
			if text, err := run("git", args...); err != nil {
				t.Fatalf("git %v: %v\n%s", args, err, text)
			}
		}
		id, err := run("git", "rev-parse", "HEAD")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(id)
	}
	if text, err := run("git", "init", "-q"); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, folder := range []string{"edf", "ringhash", "picker", "integrate/internal/balancer", "integrate/internal/rpc", "integrate/internal/link"} {
		write(folder+"/a.go", "package a\n", 0o600)
	}
	measured := commit()
	write("bench/testdata/baseline.txt", "commit: "+measured+"\n", 0o600)
	write("edf/a_test.go", "package a\n", 0o600)
	commit()

	if text, err := run(script, "v0.2.0", out); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for name, want := range map[string]string{"notes.md": "- two", "sbom.cdx.json": "-output " + out + "/sbom.cdx.json ."} {
		if text, err := os.ReadFile(filepath.Join(out, name)); err != nil || !strings.HasSuffix(strings.TrimSpace(string(text)), want) || strings.Contains(string(text), "- one") {
			t.Errorf("%s is %q (%v), want %q", name, text, err, want)
		}
	}
	for _, c := range []struct{ version, want string }{{"0.2.0", "not a version"}, {"v0.3.0", "no section"}, {"v0.1.0", "requires another version"}, {"v0.2", "not a version"}} {
		if text, err := run(script, c.version, out); err == nil || !strings.Contains(text, c.want) {
			t.Errorf("release %s: %v %q, want an error with %q", c.version, err, text, c.want)
		}
	}
	for _, folder := range []string{"edf", "integrate/internal/link"} {
		write(folder+"/a.go", "package a // other code\n", 0o600)
		commit()
		if text, err := run(script, "v0.2.0", out); err == nil || !strings.Contains(text, "1 files of picks and RPCs differ") {
			t.Errorf("a release whose figures were measured with another %s: %v %q", folder, err, text)
		}
		write(folder+"/a.go", "package a\n", 0o600)
		commit()
	}
	write("bench/testdata/baseline.txt", "commit: 0123456\n", 0o600)
	commit()
	if text, err := run(script, "v0.2.0", out); err != nil || !strings.Contains(text, "NOT CHECKED") {
		t.Errorf("a release without the commit of the recorded run: %v %q", err, text)
	}
	write("new", "", 0o600)
	if text, err := run(script, "v0.2.0", out); err == nil || !strings.Contains(text, "has changes") {
		t.Errorf("release with changes: %v %q", err, text)
	}

	// A dry run lists what is left to do, and fails if a step would not be enough.
	write("CHANGELOG.md", "# Changelog\n\n## [0.2.0] - unreleased\n\n- two\n", 0o600)
	write(".github/MAINTAINERS.md", "| name | contact |\n|---|---|\n| *nobody* | |\n", 0o600)
	text, err := run(script, "-n")
	for _, want := range []string{"to do: the checkout has changes", `to do: CHANGELOG.md has no section "## [0.2.0] - DATE"`, "MAINTAINERS.md names nobody", "the dry run passes"} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("dry run: %v %q, want %q", err, text, want)
		}
	}
	write("CHANGELOG.md", "# Changelog\n\n## [0.1.0] - 2026-12-01\n\n- one\n", 0o600)
	if text, err := run(script, "-n"); err == nil || strings.Contains(text, "passes") {
		t.Errorf("dry run without a section of the next version: %v %q", err, text)
	}
}

// TestWorkflows: the workflows run what the project runs, by scripts that exist, and OSS-Fuzz builds
// the fuzz targets of make fuzz.
func TestWorkflows(t *testing.T) {
	for name, want := range map[string][]string{"ci": {".ci/run"}, "release": {".ci/release", ".ci/run", "gh"},
		"weekly": {"make", "make", "make", "go", "go", "go", "go"}} {
		var commands []string
		for _, m := range regexp.MustCompile(`(?m)^ +- run: make (\S+)`).FindAllStringSubmatch(read(t, ".github/workflows/"+name+".yml"), -1) {
			if !strings.Contains(read(t, "Makefile"), "\n"+m[1]+":") {
				t.Errorf("%s.yml makes %s, which is no target", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^ +- run: (\S+)`).FindAllStringSubmatch(read(t, ".github/workflows/"+name+".yml"), -1) {
			commands = append(commands, m[1])
			if strings.HasPrefix(m[1], ".") {
				read(t, m[1])
			}
		}
		if strings.Join(commands, " ") != strings.Join(want, " ") {
			t.Errorf("%s.yml runs %q, want %q", name, commands, want)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)(?:cd (\S+) && |^\t@)GO=.*\.ci/fuzz (.*)`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		folder, packages := cmp.Or(m[1], `"$SRC/xdslb"`), m[2]
		if !strings.Contains(read(t, ".github/oss-fuzz/build.sh"), "\ncd "+folder+"\ntargets "+packages+"\n") {
			t.Errorf("OSS-Fuzz does not build the targets of %s in %s, as make fuzz does", packages, folder)
		}
	}
}
