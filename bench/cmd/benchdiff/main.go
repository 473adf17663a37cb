// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command benchdiff compares the working tree's hot benchmarks with another commit, on
// the current machine. It exits with 1 if the working tree is worse: an operation takes more than 5 %
// and 1 ns longer, or makes an additional allocation. It exits with 2 if the comparison fails.
//
// Both versions are built first, each from its own tree. Each benchmark then runs alternately in
// both versions, with a fixed number of iterations that takes some 20 ms, and the CPU time that
// the system accounts to the process for them is compared: unlike the duration, it does not
// include other processes. Other load can only increase it, by caches and by processors that
// share a core, so three statistics must increase: the minimum, the lower quartile, and the median ratio of a
// round. A benchmark for which two of the three increase is run again until that ends, or for four
// times as many rounds. If no Go file
// differs, as after a change of documentation, nothing is built.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/xdslb/xdslb/bench/record"
)

type options struct {
	base, pattern string
	recorded      string
	rounds        int
	force         bool
}

func main() {
	var o options
	flag.StringVar(&o.base, "base", "", "`commit` to compare with; default: where this branch left origin/main, or the previous commit")
	flag.StringVar(&o.recorded, "recorded", "", "compare with the commit of the recorded run in a `file`; if the repository does not have that commit, report that and succeed")
	flag.StringVar(&o.pattern, "bench", "^BenchmarkHot$", "run the benchmarks that match a regular `expression`")
	flag.IntVar(&o.rounds, "rounds", 6, "number of runs of each version")
	flag.BoolVar(&o.force, "force", false, "compare also if no Go file differs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	worse, err := run(ctx, o)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "benchdiff: interrupted")
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "benchdiff:", err)
		os.Exit(2)
	case worse:
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (worse bool, err error) {
	if o.rounds < 1 {
		return false, fmt.Errorf("%d rounds", o.rounds)
	}
	if o.recorded != "" {
		var missing string
		if o.base, missing, err = recordedBase(ctx, o.recorded); err != nil {
			return false, err
		}
		if missing != "" {
			fmt.Println("benchdiff: not compared:", missing)
			return false, nil
		}
	} else if o.base == "" {
		if o.base, err = defaultBase(ctx); err != nil {
			return false, err
		}
	}
	dir, err := os.MkdirTemp("", "benchdiff-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if same, err := sameCode(ctx, o.base); err != nil {
		return false, err
	} else if same && !o.force {
		fmt.Printf("benchdiff: no Go file differs from %s: nothing to compare\n", o.base)
		return false, nil
	}
	tree := filepath.Join(dir, "base")
	if err := extract(ctx, o.base, tree); err != nil {
		return false, err
	}
	base, head := filepath.Join(dir, "base.test"), filepath.Join(dir, "head.test")
	begin := time.Now()
	fmt.Fprintf(os.Stderr, "benchdiff: building ./bench of %.12s and of the working tree, which takes a minute\n", o.base)
	if err := build(ctx, tree, base); err != nil {
		return false, fmt.Errorf("build base: %w", err)
	}
	if err := build(ctx, "", head); err != nil {
		return false, err
	}
	fmt.Fprintf(os.Stderr, "benchdiff: built in %.0f s\n", time.Since(begin).Seconds())
	c := comparison{rounds: o.rounds, progress: os.Stderr, measure: func(which int, name string, iterations int64) (sample, error) {
		return measureOne(ctx, []string{base, head}[which], name, iterations)
	}}
	for which, binary := range []string{base, head} {
		results, err := runBinary(ctx, binary, o.pattern, "5ms", 1)
		if err != nil {
			return false, err
		}
		for i := range results {
			c.add(which, results[i].Name(), cost(&results[i]))
		}
	}
	if err := c.run(); err != nil {
		return false, err
	}
	return c.report(os.Stdout), nil
}

// build makes the test binary of ./bench in the module at dir, without debugging information, which
// takes half of the linker's time.
func build(ctx context.Context, dir, to string) error {
	_, err := output(ctx, dir, "go", "test", "-c", "-ldflags=-w", "-buildvcs=false", "-o", to, "./bench")
	return err
}

// measureOne runs one benchmark in a process of its own, a few times, and returns the minimum.
func measureOne(ctx context.Context, binary, name string, iterations int64) (sample, error) {
	var pattern []string
	for part := range strings.SplitSeq("Benchmark"+name, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	results, err := runBinary(ctx, binary, strings.Join(pattern, "/"), fmt.Sprintf("%dx", iterations), repeats)
	if err != nil {
		return sample{}, err
	}
	if len(results) != repeats {
		return sample{}, fmt.Errorf("%s: %d results, want %d", name, len(results), repeats)
	}
	least := cost(&results[0])
	for i := range results {
		least = least.min(cost(&results[i]))
	}
	return least, nil
}

// runBinary runs a test binary's benchmarks.
func runBinary(ctx context.Context, binary, pattern, time string, count int) ([]record.Result, error) {
	out, err := output(ctx, "", binary, "-test.run", "^$", "-test.bench", pattern, "-test.benchtime", time, "-test.benchmem", "-test.cpu", "1",
		"-test.count", fmt.Sprint(count))
	if err != nil {
		return nil, err
	}
	rec, err := record.Read(strings.NewReader(out))
	if err != nil {
		return nil, err
	}
	return rec.Results, nil
}

// cost returns the measurements of a result.
func cost(r *record.Result) (s sample) {
	var ok bool
	if s.ns, ok = r.Value("cpu-ns/op"); !ok {
		s.ns, _ = r.Value("ns/op")
	}
	s.allocs, _ = r.Value("allocs/op")
	return s
}

// output runs a command in a directory and returns its output, trimmed. When ctx ends, the command is
// interrupted, so that the go command can end its own processes.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	var out, problems bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out.Bytes(), problems.Bytes())
	}
	return strings.TrimSpace(out.String()), nil
}
