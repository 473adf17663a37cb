// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command scoreboard runs the benchmarks, including those of gRPC's internals, and prints
// tables that compare the implementations. It must run in the module's root, as make bench
// does.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/xdslb/xdslb/bench/overlay"
	"github.com/xdslb/xdslb/bench/record"
)

type options struct {
	pattern, time, cpu, out string
	count                   int
	peers, short            bool
}

func main() {
	var o options
	flag.StringVar(&o.pattern, "bench", ".", "run the benchmarks that match a regular `expression`")
	flag.StringVar(&o.time, "benchtime", "60ms", "duration, or number of iterations (10x), of each benchmark")
	flag.StringVar(&o.cpu, "cpu", "1,2", "GOMAXPROCS of the pick benchmarks; other benchmarks use the last")
	flag.StringVar(&o.out, "o", "", "`file` to record the results in")
	flag.IntVar(&o.count, "count", 1, "number of runs; tables show the minimum")
	flag.BoolVar(&o.peers, "peers", true, "include the benchmarks of bench/peers")
	flag.BoolVar(&o.short, "short", false, "skip large sizes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "scoreboard:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "xdslb-bench")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	flags, err := overlay.Prepare(root, dir)
	if err != nil {
		return err
	}
	var log bytes.Buffer
	describe(ctx, &log, o) // before writing the record changes the output of git describe
	out := io.Writer(&log)
	if o.out != "" {
		f, err := os.Create(o.out)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if _, err := f.Write(log.Bytes()); err != nil {
			return err
		}
		out = io.MultiWriter(&log, f)
	}
	progress := &ticker{w: os.Stderr}
	list, err := passes(o)
	if err != nil {
		return err
	}
	for i, p := range list {
		progress.done()
		fmt.Fprintf(os.Stderr, "benchmarks, pass %d of %d: building %s first, which takes a while\n", i+1, len(list), path.Join(p.dir, p.pkg))
		args := []string{"test", "-run", "^$", "-bench", p.pattern, "-benchmem", "-benchtime", o.time, "-timeout", "60m",
			"-count", fmt.Sprint(o.count), "-cpu", p.cpu}
		if o.short {
			args = append(args, "-short")
		}
		if p.skip != "" {
			args = append(args, "-skip", p.skip)
		}
		if p.dir == "" && internals(p.pattern) {
			args = append(args, flags...)
		}
		cmd := exec.CommandContext(ctx, "go", append(args, p.pkg)...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, io.MultiWriter(out, progress), os.Stderr
		if err := cmd.Run(); err != nil {
			progress.done()
			_, _ = io.Copy(os.Stderr, &log)
			return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
		}
	}
	progress.done()
	rec, err := record.Read(&log)
	if err != nil {
		return err
	}
	return show(os.Stdout, rec)
}

// internals reports whether a pattern matches a benchmark that uses internals of gRPC. For others
// gRPC need not be compiled with package overlay, so that the first figure is printed sooner.
func internals(pattern string) bool {
	return slices.ContainsFunc([]string{"BenchmarkSelect", "BenchmarkEDF", "BenchmarkRing", "BenchmarkDecode"}, matcher(pattern))
}

// matcher returns a function that reports whether a pattern of go test -bench matches benchmarks of a function. If
// the pattern is invalid, it reports true, so that go test reports the error.
func matcher(pattern string) func(function string) bool {
	var first []byte // the pattern without what follows a slash, which is about subbenchmarks
	depth, keep := 0, true
	for _, c := range []byte(pattern) {
		switch {
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case depth == 0 && c == '/':
			keep = false
		case depth == 0 && c == '|':
			keep = true
		}
		if keep {
			first = append(first, c)
		}
	}
	re, err := regexp.Compile(string(first))
	return func(function string) bool { return err != nil || re.MatchString(function) }
}

var benchmarkFunction = regexp.MustCompile(`(?m)^func (Benchmark\w*)\(`)

// has reports whether a pass runs a benchmark, by reading the tests of its package and those that package overlay
// adds to it.
func (p *pass) has() (bool, error) {
	files, err := filepath.Glob(filepath.Join(p.dir, p.pkg, "*_test.go"))
	if err != nil || files == nil {
		return false, cmp.Or(err, fmt.Errorf("%s has no tests: make bench runs in the root of the module", path.Join(p.dir, p.pkg)))
	}
	added, err := filepath.Glob(filepath.Join(p.dir, p.pkg, "overlay/files/*_test.go.txt"))
	if err != nil {
		return false, err
	}
	files = append(files, added...)
	matches, skips := matcher(p.pattern), matcher(cmp.Or(p.skip, "^$"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return false, err
		}
		for _, m := range benchmarkFunction.FindAllSubmatch(text, -1) {
			if name := string(m[1]); matches(name) && !skips(name) {
				return true, nil
			}
		}
	}
	return false, nil
}

// A pass is one run of go test.
type pass struct{ dir, pkg, pattern, skip, cpu string }

// parallel matches the benchmarks that depend on the number of processors.
const parallel = "^Benchmark(EDF|Pick|PickUpdates|Policy|Select)$"

// passes splits a full run: pick benchmarks run with each number of processors, all other
// benchmarks with the last. Packages without a benchmark of the pattern are not built.
func passes(o options) (list []pass, err error) {
	last := o.cpu[strings.LastIndexByte(o.cpu, ',')+1:]
	all := []pass{{pkg: "./bench", pattern: o.pattern, cpu: o.cpu}}
	if o.pattern == "." {
		all = []pass{
			{pkg: "./bench", pattern: parallel, cpu: o.cpu},
			{pkg: "./bench", pattern: o.pattern, skip: parallel, cpu: last},
		}
	}
	all = append(all, pass{pkg: "./bench/rollout", pattern: o.pattern, cpu: last}, pass{pkg: "./bench/size", pattern: o.pattern, cpu: last})
	if o.peers {
		all = append(all, pass{dir: "bench/peers", pkg: ".", pattern: o.pattern, cpu: last})
	}
	for _, p := range all {
		has, err := p.has()
		if err != nil {
			return nil, err
		}
		if has {
			list = append(list, p)
		}
	}
	if list == nil {
		return nil, fmt.Errorf("no benchmark matches %q", o.pattern)
	}
	return list, nil
}

// describe writes the environment and the command of the run.
func describe(ctx context.Context, w io.Writer, o options) {
	first := func(name string, args ...string) string {
		out, err := exec.CommandContext(ctx, name, args...).Output()
		if err != nil {
			return "unknown"
		}
		line, _, _ := strings.Cut(string(out), "\n")
		return strings.TrimSpace(line)
	}
	fmt.Fprintf(w, "commit: %s\n", first("git", "describe", "--always", "--dirty"))
	fmt.Fprintf(w, "date: %s\n", first("date", "-u", "+%Y-%m-%d"))
	fmt.Fprintf(w, "go: %s\n", first("go", "env", "GOVERSION"))
	fmt.Fprintf(w, "grpc: %s\n", first("go", "list", "-m", "-f", "{{.Version}}", "google.golang.org/grpc"))
	fmt.Fprintf(w, "processors: %s\n", first("nproc"))
	load, _, _ := strings.Cut(first("cat", "/proc/loadavg"), " ")
	fmt.Fprintf(w, "load: %s\n", load)
	fmt.Fprintf(w, "command: go run ./bench/cmd/scoreboard -bench '%s' -benchtime %s -count %d\n", o.pattern, o.time, o.count)
}

// show prints a table of times, and tables of the other units for the benchmarks that report
// them.
func show(w io.Writer, rec *record.Record) error {
	for _, s := range rec.Config {
		if s.Key != "pkg" {
			fmt.Fprintf(w, "%s: %s\n", s.Key, s.Value)
		}
	}
	for _, t := range rec.Tables("impl", "ns/op", "cpu-ns/op", "cpu-µs/op", "cpu-ms/op", "client-cpu-µs/op", "all-cpu-µs/op", "client-KiB/op", "KiB/op", "B/endpoint", "down-B/op", "up-B/op", "allocs/op", "B/binary") {
		fmt.Fprintln(w)
		if err := t.Print(w, "ours"); err != nil {
			return err
		}
	}
	return nil
}

// ticker shows the benchmark that finished last: on a terminal in a single line, elsewhere
// with a line per operation.
type ticker struct {
	w    *os.File
	part []byte
	n    int
	op   string
}

// Write implements io.Writer. It never fails.
func (t *ticker) Write(p []byte) (int, error) {
	t.part = append(t.part, p...)
	for {
		line, rest, ok := bytes.Cut(t.part, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		t.part = rest
		if name, _, ok := bytes.Cut(line, []byte(" ")); ok && bytes.HasPrefix(name, []byte("Benchmark")) {
			t.n++
			op, _, _ := strings.Cut(string(name), "/")
			switch {
			case t.terminal():
				fmt.Fprintf(t.w, "\r\x1b[K%6d  %s", t.n, bytes.TrimSpace(name))
			case op != t.op:
				fmt.Fprintf(t.w, "%6d  %s\n", t.n, op)
			}
			t.op = op
		}
	}
}

func (t *ticker) terminal() bool {
	info, err := t.w.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (t *ticker) done() {
	if t.terminal() {
		fmt.Fprint(t.w, "\r\x1b[K")
	}
}
