// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// machine is a shared machine, whose other load changes now and then.
type machine struct {
	rng  *rand.Rand
	load float64 // 1 is none
}

// measure returns the measurement of an operation that takes floor on an idle machine, with some jitter, often
// an interruption, and now and then a process that is faster than others. Other load multiplies the result.
func (m *machine) measure(floor float64) float64 {
	rng := m.rng
	if rng.Float64() < .1 {
		m.load = 1 + rng.Float64()
	}
	floor *= m.load
	if rng.Float64() < .03 {
		floor *= .8
	}
	least := math.Inf(1)
	for range repeats {
		v := floor * (1 + .05*math.Abs(rng.NormFloat64()))
		if rng.Float64() < .5 {
			v *= 1 + 2*rng.Float64()
		}
		least = min(least, v)
	}
	return least
}

// TestComparison checks, with the noise of a busy machine, that of 1000 comparisons of the same code at most one fails,
// that with an additional 75 ns at least 990 fail, and with an additional allocation all.
func TestComparison(t *testing.T) {
	const seed, runs = 1, 1000
	floors := map[string]float64{"Hot/op=edf": 7, "Hot/op=pick": 160, "Hot/op=channel": 250}
	names := slices.Sorted(maps.Keys(floors)) // in the same order for each run of the test
	for _, test := range []struct {
		name        string
		change      sample
		least, most int // comparisons that fail
	}{
		{"nothing", sample{}, 0, runs / 1000},
		{"75 ns", sample{ns: 75}, runs * 99 / 100, runs},
		{"an allocation", sample{allocs: 1}, runs, runs},
	} {
		m, failed := &machine{rng: rand.New(rand.NewPCG(seed, 1)), load: 1}, 0
		for range runs {
			c := comparison{rounds: 6, progress: io.Discard, measure: func(which int, name string, iterations int64) (sample, error) {
				if want := window / floors[name]; float64(iterations) < want/2 || float64(iterations) > want*2 {
					t.Fatalf("%s: %d iterations, want about %.0f", name, iterations, want)
				}
				s := sample{ns: floors[name]}
				if which == 1 && name == "Hot/op=pick" {
					s = sample{s.ns + test.change.ns, test.change.allocs}
				}
				s.ns = m.measure(s.ns)
				return s, nil
			}}
			for _, name := range names {
				for which := range versions {
					s := sample{ns: floors[name]}
					if which == 1 && name == "Hot/op=pick" {
						s.allocs = test.change.allocs
					}
					c.add(which, name, s)
				}
			}
			c.add(0, "Hot/op=old", sample{ns: 5})
			c.add(1, "Hot/op=new", sample{ns: 5})
			kit.Must(t, c.run())
			var out strings.Builder
			if c.report(&out) {
				failed++
			}
			for _, line := range []string{"Hot/op=old  *gone", "Hot/op=new  *new"} {
				if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), strings.ReplaceAll(line, "  *", " ")) {
					t.Fatalf("%q is not in the report:\n%s", line, &out)
				}
			}
		}
		t.Logf("with %s more, %d of %d comparisons fail", test.name, failed, runs)
		if failed < test.least || failed > test.most {
			t.Errorf("seed %d: with %s more, %d of %d comparisons fail; want %d to %d", seed, test.name, failed, runs, test.least, test.most)
		}
	}
	if err := new(comparison{rounds: 1, progress: io.Discard}).run(); err == nil {
		t.Error("a comparison of nothing succeeds")
	}
}

// TestRecordedBase checks that a commit that the repository does not have is reported, and a record
// without a commit is an error.
func TestRecordedBase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record.txt")
	for text, want := range map[string]string{
		"commit: 0123456789abcdef-dirty\n":              "commit 0123456789abcdef,",
		"commit: v1.2.3-4-g0123456789abcdef\n":          "commit 0123456789abcdef,",
		"commit: --upload-pack=x\n":                     "commit --upload-pack=x,",
		"date: 2026-01-01\n":                            "",
		"commit: a\nBenchmarkX 1 2 3 of no benchmark\n": "",
	} {
		kit.Must(t, os.WriteFile(file, []byte(text), 0o600))
		_, missing, err := recordedBase(context.Background(), file)
		if (err != nil) != (want == "") || !strings.Contains(missing, want) {
			t.Errorf("%q: missing %q, error %v; want %q", text, missing, err, want)
		}
	}
}

// TestUntar checks that files are written with their modes, and none outside of the directory.
func TestUntar(t *testing.T) {
	pack := func(name string, mode int64) *bytes.Buffer {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		kit.Must(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: 1}))
		if _, err := w.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		kit.Must(t, w.Close())
		return &b
	}
	dir := filepath.Join(t.TempDir(), "a")
	kit.Must(t, untar(pack("b/c", 0o755), dir))
	if text, err := os.ReadFile(filepath.Join(dir, "b", "c")); err != nil || string(text) != "x" {
		t.Errorf("the file has %q: %v", text, err)
	}
	if err := untar(pack("../c", 0o644), filepath.Join(t.TempDir(), "a")); err == nil {
		t.Error("a file outside of the directory is written")
	}
}
