// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"os/exec"
	"regexp"
	"runtime"
	"testing"
)

// The compiler inlines picks into their callers. Ring.Pick and View.Pick are at 77 and 79 of
// its budget of 80.
func TestInlining(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the compiler")
	}
	if runtime.GOARCH == "386" {
		t.Skip("64-bit arithmetic and atomics weigh more in the inliner's budget on 386")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("there is no go command")
	}
	out, err := exec.Command(goTool, "build", "-gcflags=-m", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, name := range []string{
		"(*Ring).Pick", "(*Ring).Walk", "(*Ring).Len",
		"(*View).Pick", "(*Maglev).Pick", "Probe", "(*index).seek", "(*entry).hash", "newEntry", "mix",
	} {
		if !regexp.MustCompile("can inline " + regexp.QuoteMeta(name) + "\n").Match(out) {
			t.Errorf("%s is not inlined", name)
		}
	}
}
