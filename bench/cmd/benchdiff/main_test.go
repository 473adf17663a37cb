// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// commandVariable has the test binary be the command.
const commandVariable = "XDSLB_BENCHDIFF"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestTerminated checks that the command reports what it does before it builds, and that SIGTERM, as the time limit
// of a CI system sends it, leaves neither files nor a work tree.
func TestTerminated(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	root, temp := t.TempDir(), t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", root, "-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	git("init", "-q")
	kit.Must(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module example.com/x\n"), 0o600))
	git("add", ".")
	git("commit", "-q", "-m", "x")

	// go waits until the test has ended, as if it took long to build.
	tools := t.TempDir()
	kit.Must(t, os.WriteFile(filepath.Join(tools, "go"), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700))
	cmd := exec.Command(os.Args[0], "-base", "HEAD", "-force")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), commandVariable+"=1", "TMPDIR="+temp, "PATH="+tools+string(filepath.ListSeparator)+os.Getenv("PATH"))
	stderr, err := cmd.StderrPipe()
	kit.Must(t, err)
	kit.Must(t, cmd.Start())
	lines := bufio.NewReader(stderr)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "building ./bench") {
		t.Errorf("the first line is %q, want one about building: %v", line, err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) == 0 {
		t.Errorf("%s has no files while the command builds: %v", temp, err)
	}
	kit.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(lines)
	kit.Must(t, err)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("after SIGTERM the command ends with %v, want exit status 2; its output is\n%s", err, rest)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("after SIGTERM %s has %v, want nothing: %v", temp, left, err)
	}
	if list := git("worktree", "list"); strings.Count(list, "\n") != 1 {
		t.Errorf("after SIGTERM the clone has work trees\n%s", list)
	}
}
