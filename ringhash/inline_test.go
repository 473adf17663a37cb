// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"os/exec"
	"regexp"
	"testing"
)

// The functions of a pick are inlined into their callers, down to one function
// without calls; the compiler says so.
func TestInlining(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the compiler")
	}
	out, err := exec.Command("go", "build", "-gcflags=-m", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, name := range []string{
		"(*Ring).Pick", "(*Ring).Position", "(*Ring).HostAt", "(*Ring).Next", "(*Ring).Len",
		"(*View).Pick", "(*Maglev).Pick", "Probe", "(*index).seek", "(*entry).hash", "newEntry", "mix",
	} {
		if !regexp.MustCompile("can inline " + regexp.QuoteMeta(name) + "\n").Match(out) {
			t.Errorf("%s is not inlined", name)
		}
	}
}
