// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"bytes"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// compile returns the compiler's output for the package with a flag.
func compile(t *testing.T, flag string) []byte {
	if testing.Short() || raceEnabled {
		t.Skip("runs the compiler")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("there is no go command")
	}
	out, err := exec.Command(goTool, "build", "-gcflags="+flag, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return out
}

// The parts of a pick and of the end of an RPC are inlined.
func TestInlining(t *testing.T) {
	if runtime.GOARCH == "386" {
		t.Skip("64-bit arithmetic and atomics weigh more in the inliner's budget on 386")
	}
	out := compile(t, "-m")
	for _, name := range []string{
		"(*Alias).Pick", "draw", "probability.hit", "(*Breaker).release", "(*Counter).Add",
		"(*bounds).limit", "(*Snapshot).NeedsRandom",
		"(*timing).begin", "(*timing).end", "(*Clock).now",
	} {
		if !regexp.MustCompile("can inline " + regexp.QuoteMeta(name) + "\n").Match(out) {
			t.Errorf("%s is not inlined", name)
		}
	}
}

// A Result stays in registers.
func TestResultFields(t *testing.T) {
	if n := reflect.TypeFor[Result]().NumField(); n > 4 {
		t.Errorf("a Result has %d fields, more than the compiler keeps in registers", n)
	}
}

// The only indexes that the compiler must check in the pick itself are results of a table or a
// sequence.
func TestBoundsChecks(t *testing.T) {
	out := compile(t, "-d=ssa/check_bce")
	source, err := os.ReadFile("snapshot.go")
	kit.Must(t, err)
	lines := bytes.Split(source, []byte("\n"))
	allowed := map[string]int{
		"to := &t.routes[route]": 1,
		"return route, to.clusters[to.split.Pick(draw(r, drawCluster))], Picked": 2,
		"i = c.alias.Pick(r)":                             1,
		"g := &c.groups[i]":                               1,
		"g.endpoints[endpoint].begin()":                   1,
		"g.endpoints[found.Index-g.first].begin()":        1,
		"c.counts[category].Add()":                        1,
		"s.clusters.At(int(r.Cluster)).breaker.Release()": 1,
	}
	for _, m := range regexp.MustCompile(`snapshot\.go:(\d+):\d+: Found Is(Slice)?InBounds`).FindAllSubmatch(out, -1) {
		n, _ := strconv.Atoi(string(m[1]))
		line := strings.TrimSpace(string(lines[n-1]))
		if allowed[line]--; allowed[line] < 0 {
			t.Errorf("snapshot.go:%d: unexpected bounds check: %s", n, line)
		}
	}
}
